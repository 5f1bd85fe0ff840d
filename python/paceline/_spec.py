"""Nets as they are to be: layer by layer, from the zoo, or from a file."""
import ctypes
import os
from typing import Any, List, Optional, Sequence

from . import _interface as c
from ._library import Engine, Owned, encoded, lib, options

_FILLERS = ("filler", "std", "value", "bias", "bias_value", "rate", "decay", "bias_rate",
            "bias_decay")


def zoo() -> List[str]:
    """The names of the nets that the library knows, such as "resnet-50"."""
    at = ctypes.cast(lib.pl_zoo_names(), ctypes.POINTER(ctypes.c_char_p))
    names: List[str] = []
    while at[len(names)]:
        names.append(at[len(names)].decode())
    return names


class Spec(Owned):
    """A net, built layer by layer:

        Spec().input(1, 28, 28).convolution(20, 5).pooling(2, 2).inner_product(10).softmax_loss()

    Each method adds a layer on top of the last one, or on the layers that `bottom` names, and
    returns the specification. A layer's name is its kind and number, "ip1", unless `name` gives
    another. A layer that does not fit its neighbours is an error when a net is made of it.
    """

    def __init__(self, name: str = "net", engine: Optional[Engine] = None):
        engine = engine or Engine()
        super().__init__(engine, lib.pl_net_spec_free)
        engine.check(lib.pl_net_spec_create(engine, name.encode(), ctypes.byref(self.handle)))
        self.top = "data"
        self._counts: dict = {}

    @classmethod
    def of(cls, engine: Engine, net: Any) -> "Spec":
        """From a Spec, a net of the zoo, a path of a prototxt, or its text."""
        self = cls.__new__(cls)
        Owned.__init__(self, engine, lib.pl_net_spec_free)
        self.top, self._counts = "", {}
        out = ctypes.byref(self.handle)
        text = net.text() if isinstance(net, Spec) else os.fspath(net)
        if "{" in text:
            from ._job import Job
            job = Job(engine)
            job.set_net(text)
            engine.check(lib.pl_net_spec_job(job, out))
        elif "/" in text or "." in text:
            engine.check(lib.pl_net_spec_load(engine, encoded(text), out))
        else:
            engine.check(lib.pl_net_spec_zoo(engine, text.encode(), out))
        return self

    def text(self) -> str:
        """The net as a Caffe prototxt."""
        out = ctypes.c_char_p()
        self.engine.check(lib.pl_net_spec_text(self, ctypes.byref(out)))
        return (out.value or b"").decode()

    def _names(self, kind: str, name: Optional[str], bottom: Optional[str]):
        self._counts[kind] = self._counts.get(kind, 0) + 1
        name = name or "%s%d" % (kind, self._counts[kind])
        bottom, self.top = bottom or self.top, name
        return name.encode(), bottom.encode()

    @staticmethod
    def _weights(fields: dict):
        """The options of weights among these keywords, taken out of them."""
        weights = options(c.pl_weight_options, filler="xavier", bias=True, rate=1, decay=1,
                          bias_rate=2, bias_decay=1)
        for field in _FILLERS:
            if field in fields:
                value = fields.pop(field)
                setattr(weights, field, value.encode() if isinstance(value, str) else value)
        return weights

    def input(self, channels: int = 0, height: int = 1, width: int = 1) -> "Spec":
        """Records and their labels. Without numbers their shape is that of the data."""
        if not channels:
            height = width = 0
        lib.pl_spec_input(self, b"data", b"label", channels, height, width)
        self.top = "data"
        return self

    def convolution(self, outputs: int, kernel: int, stride: int = 1, pad: int = 0, *,
                    name: Optional[str] = None, bottom: Optional[str] = None,
                    transposed: bool = False, **fields) -> "Spec":
        """A window of kernel x kernel. Keywords: kernel_w, pad_w, group, dilation; filler, std,
        value, bias, bias_value, rate, decay, bias_rate, bias_decay. `transposed`: the way back."""
        weights = self._weights(fields)
        made = options(c.pl_convolution_options, stride=stride, pad=pad, group=1, dilation=1,
                       weights=ctypes.addressof(weights), **fields)
        call = lib.pl_spec_deconvolution if transposed else lib.pl_spec_convolution
        call(self, *self._names("conv", name, bottom), outputs, kernel, ctypes.byref(made))
        return self

    def pooling(self, kernel: int = 0, stride: int = 1, pad: int = 0, *, average: bool = False,
                name: Optional[str] = None, bottom: Optional[str] = None) -> "Spec":
        """The highest of each window, or the average; without a kernel, of each channel."""
        method = c.PL_POOL_AVERAGE if average else c.PL_POOL_MAX
        names = self._names("pool", name, bottom)
        if kernel:
            lib.pl_spec_pooling_padded(self, *names, method, kernel, stride, pad)
        else:
            lib.pl_spec_pooling_global(self, *names, method)
        return self

    def inner_product(self, outputs: int, *, name: Optional[str] = None,
                      bottom: Optional[str] = None, **fields) -> "Spec":
        """Each output from all inputs. Keywords: as convolution's, for the weights."""
        weights = self._weights(fields)
        if fields:
            raise TypeError("inner_product: there is no %s" % ", ".join(fields))
        lib.pl_spec_inner_product(self, *self._names("ip", name, bottom), outputs,
                                  ctypes.byref(weights))
        return self

    def relu(self, *, name: Optional[str] = None, bottom: Optional[str] = None) -> "Spec":
        """The value, or 0 where it is less."""
        lib.pl_spec_relu(self, *self._names("relu", name, bottom))
        return self

    def sigmoid(self, *, name: Optional[str] = None, bottom: Optional[str] = None) -> "Spec":
        """1 / (1 + exp(-x))."""
        lib.pl_spec_sigmoid(self, *self._names("sigmoid", name, bottom))
        return self

    def dropout(self, ratio: float = 0.5, *, name: Optional[str] = None,
                bottom: Optional[str] = None) -> "Spec":
        """In training each element is zero with this probability."""
        lib.pl_spec_dropout(self, *self._names("drop", name, bottom), ratio)
        return self

    def batch_norm(self, *, eps: float = 0, fraction: float = 0, name: Optional[str] = None,
                   bottom: Optional[str] = None) -> "Spec":
        """To mean 0 and variance 1 in each channel; a scale usually follows."""
        made = options(c.pl_batch_norm_options, eps=eps, fraction=fraction)
        lib.pl_spec_batch_norm(self, *self._names("norm", name, bottom), ctypes.byref(made))
        return self

    def scale(self, *, bias: bool = True, name: Optional[str] = None,
              bottom: Optional[str] = None) -> "Spec":
        """Each channel times a weight, and plus a bias."""
        lib.pl_spec_scale(self, *self._names("scale", name, bottom), bias)
        return self

    def concat(self, bottoms: Sequence[str], *, name: Optional[str] = None) -> "Spec":
        """The channels of several layers after one another."""
        array = (ctypes.c_char_p * len(bottoms))(*(b.encode() for b in bottoms))
        lib.pl_spec_concat(self, self._names("concat", name, None)[0], array, len(bottoms))
        return self

    def add(self, bottoms: Sequence[str], *, name: Optional[str] = None) -> "Spec":
        """The sum of several layers of one shape."""
        array = (ctypes.c_char_p * len(bottoms))(*(b.encode() for b in bottoms))
        lib.pl_spec_eltwise(self, self._names("sum", name, None)[0], c.PL_ELTWISE_SUM, array,
                            len(bottoms), None)
        return self

    def softmax_loss(self, *, accuracy: bool = True, bottom: Optional[str] = None) -> "Spec":
        """The loss over classes, and with `accuracy` the layer that counts right answers."""
        scores = (bottom or self.top).encode()
        lib.pl_spec_softmax_loss(self, b"loss", scores, b"label")
        if accuracy:
            lib.pl_spec_accuracy(self, b"accuracy", scores, b"label")
        return self

    def layer(self, text: str, *, top: Optional[str] = None) -> "Spec":
        """Any layer, as a prototxt describes it, without the `layer { }` around. `top`: the blob
        that later layers read."""
        lib.pl_spec_layer(self, text.encode())
        self.top = top or self.top
        return self
