"""Mistakes with data: its path, its contents, its description."""
import gzip
import io
import os
import tarfile

from case import NO_FILE, Case, sets, train, words

SKIP = r"repair or remove it .*on_bad_record=skip"


def images(folder, *more):
    """`paceline train` with a folder of pictures in place of the job's data."""
    def prepare(scene):
        text = scene.path("x.job")
        with open(text) as f:
            content = f.read()
        begin, end = content.index("train_data"), content.index("batch")
        scene.write("x.job", content[:begin] + f'train_data {{ images {{ list: "{folder}" }} }}\n'
                    + content[end:])
        return ["train", "x.job", "--out", "run", *more]
    return prepare


def table(content, label="size", more=""):
    """`paceline train` with a table in place of the job's data."""
    def prepare(scene):
        scene.write("table.csv", content)
        with open(scene.path("x.job")) as f:
            text = f.read()
        begin, end = text.index("train_data"), text.index("batch")
        scene.write("x.job", text[:begin] + f"train_data {{ csv {{ path: 'table.csv' label: '{label}' {more} }} }}\n"
                    + text[end:])
        return ["train", "x.job", "--out", "run"]
    return prepare


def spoil(folder, name, content, command=("--set", "stop.epochs=3"), **size):
    """Pictures of which one file is something else."""
    def prepare(scene):
        scene.pictures(folder, **size)
        scene.write(f"{folder}/{name}", content)
        return images(folder, "--set", "batch=4", *command)(scene)
    return prepare


def sizes_differ(scene):
    scene.pictures("pets")
    scene.picture("pets/cat/05.png", width=20, height=9)
    return images("pets", "--set", "batch=4")(scene)


def truncated(scene):
    scene.pictures("pets")
    path = scene.path("pets/dog/07.png")
    with open(path, "rb") as f:
        head = f.read()
    scene.write("pets/dog/07.png", head[:len(head) * 2 // 3])
    return images("pets", "--set", "batch=4", "--set", "stop.epochs=3")(scene)


def empty_class(scene):
    scene.pictures("pets")
    os.mkdir(scene.path("pets/emu"))
    return images("pets", "--set", "batch=4")(scene)


def archive(spec, labels=True, end=None, packed=False):
    """`paceline data info` of an archive in which something is wrong."""
    def prepare(scene):
        scene.pictures("pets")
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for label, name in enumerate(("cat", "dog")):
                for i in range(12):
                    tar.add(scene.path(f"pets/{name}/{i:02}.png"), f"{name}/{i:02}.png")
                    member = tarfile.TarInfo(f"{name}/{i:02}.cls")
                    member.size = 1
                    if labels:
                        tar.addfile(member, io.BytesIO(b"%d" % label))
        content = out.getvalue()[:end]
        scene.write("pets-0.tar", gzip.compress(content) if packed else content)
        return ["data", "info", f"webdataset:{spec}"]
    return prepare


def short_labels(scene):
    scene.idx("train", 600, labels=599)
    return ["train", "x.job", "--out", "run"]


def cut(name, share):
    def prepare(scene):
        with open(scene.path(name), "rb") as f:
            content = f.read()
        scene.write(name, content[:int(len(content) * share)])
        return ["train", "x.job", "--out", "run"]
    return prepare


def unscaled(scene):
    scene.job("x.job", ("  scale: 0.00390625\n", ""), ("  scale: 0.00390625\n", ""))
    return ["train", "x.job", "--out", "run", "--set", "solver.base_lr=0.00001"]


CASES = [
    Case("no file of images", train(("train-images", "nowhere")), "No such file", "train_data: nowhere:", NO_FILE),
    Case("images and labels exchanged",
         train(('images: "train-images" labels: "train-labels"', 'images: "train-labels" labels: "train-images"')),
         "not an IDX image file", "train_data: train-labels:", "exchange the two"),
    Case("labels of another set", train(('labels: "train-labels"', 'labels: "test-labels"')),
         "120 labels for the 600 images", "train_data: test-labels:", "give files of the same set"),
    Case("a file of images cut short", cut("train-images", 0.7), "truncated: 60491 bytes, header promises 86416",
         "train_data: train-images:", "copy it again"),
    Case("a file of labels that says less", short_labels, "599 labels for the 600 images",
         "train_data: train-labels:", "give files of the same set"),
    Case("a key that a SPEC does not have", words("data", "info", "idx:train-images,train-labels?classes=2"),
         r"\?classes=2:", "idx:train-images", r"expected after `\?` some of scale="),
    Case("an unknown kind of data", words("data", "info", "xls:table.xls"), "no kind of data is called `xls`",
         r"xls:table\.xls:", "there are idx, cifar10"),
    Case("a table with two labels", words("data", "info", "csv:table.csv,a,b"), r"csv:table\.csv,a,b:", "paceline:",
         r"expected csv:TABLE\[,LABEL\]"),
    Case("a misspelt label", table("a,size\n1,0\n2,1\n", label="sise"), "no column `sise`",
         r"table\.csv:", "they are a, size"),
    Case("a row that is short", table("a,size\n1,0\n2\n"), "line 3: 1 fields, and the first row has 2",
         r"table\.csv:", SKIP),
    Case("an empty field", table("a,b,size\n1,2,0\n,4,1\n"), r"line 3, column 1 \(a\): is empty", r"table\.csv:",
         "`missing: 0` would take 0 for it"),
    Case("text where numbers are", table("a,size\n1,0\n2,1\nx,0\n", more="column { name: 'a' kind: number }"),
         r"line 4, column 1 \(a\): `x` is not a number", r"table\.csv:", SKIP),
    Case("a quote that is not closed", table('a,size\n1,0\n"2,1\n3,1\n'), "line 3: a quote is opened and not closed",
         r"table\.csv:", SKIP),
    Case("another delimiter", table("a;size\n1;0\n"), "no column `size`", r"table\.csv:", "they are a;size"),
    Case("a key misspelt in a SPEC", words("data", "info", "images:pets?resise=36"), r"\?resise=36:", "images:pets",
         r"expected after `\?` some of .*resize="),
    Case("a scale of words", words("data", "info", "idx:train-images,train-labels?scale=small"), "not `small`",
         "scale:", "expected a number"),
    Case("a SPEC without a path", words("data", "info", "idx"), "idx:", "paceline:",
         "expected KIND:PATH, such as idx:IMAGES,LABELS"),
    Case("a folder that is not there", images("pests"), "No such file", "train_data: pests:", NO_FILE),
    Case("a folder without pictures",
         lambda s: [s.write("none/readme.txt", "x"), "data", "info", "images:none"][1:],
         "holds no folder with pictures", "none:", "put them into one folder a class"),
    Case("pictures of different sizes", sizes_differ, "9 x 20 pixels, and record 0 has 16 x 16", r"cat/05\.png",
         "resize them"),
    Case("a text file as a picture", spoil("pets", "dog/03.png", "no picture at all\n"), "neither JPEG nor PNG",
         r"pets/dog/03\.png:", SKIP),
    Case("an empty picture", spoil("pets", "dog/03.png", ""), ": empty;", r"pets/dog/03\.png", SKIP),
    Case("a picture cut short", truncated, "PNG: broken off", r"step \d+: pets/dog/07\.png:", SKIP),
    Case("a stray file next to the classes",
         spoil("pets", "README.txt", "hello\n", ("--set", "stop.steps=4")), r"are ignored \(README\.txt\)", "warning: pets:",
         None, code=(0,)),
    Case("an empty class", empty_class, "1 classes without pictures", r"warning: pets: .*\(emu\)", None, code=(0,)),
    Case("all records held out", sets("validation=600"), "600 held out of 600 records", "validation:",
         "hold out fewer"),
    Case("more held out than there are", sets("validation=6000"), "6000 held out of 600 records", "validation:",
         "hold out fewer"),
    Case("a crop larger than the picture", sets("train_data.crop=20"),
         "12 x 12 pixels cannot be cropped to 20 x 20", "train_data: data: record 0:", "or crop to less"),
    Case("a mean of other channels", train(("scale: 0.00390625", "mean: 1 mean: 2 mean: 3")),
         "3 values of mean for records of 1 channels", "train_data:", "expected one, or one a channel"),
    Case("a mean file that is not there", sets("train_data.mean_file=nowhere"), "No such file",
         "train_data: mean_file: nowhere:", NO_FILE),
    Case("a batch larger than the data", sets("batch=601"), "a step takes 601 records", "suspicious: .*600 to train on",
         "write a smaller --batch", code=(0,)),
    Case("pixels that are not scaled", unscaled, "values of records go from 0 to 249", "suspicious:",
         r"write --set train_data\.scale=0\.00390625", code=(0,)),
    Case("a label beyond the outputs",
         lambda s: [s.idx("train", 600, classes=9), "train", "x.job", "--out", "run"][1:], "label 8 is out of range",
         "train_data:", "set num_output of its last layer to 9"),
    Case("a missing batch of CIFAR",
         lambda s: [s.write("cifar/data_batch_1.bin", bytes(3073)), "data", "info", "cifar10:cifar"][1:],
         "No such file", r"cifar/test_batch\.bin:", NO_FILE),
    Case("an LMDB that is none",
         lambda s: [s.write("db/data.mdb", b"nonsense" * 2000), "data", "info", "lmdb:db"][1:], "not an LMDB",
         r"db/data\.mdb:", r"give the folder, or the data\.mdb, of one"),
    Case("an archive cut short", archive("pets-0.tar", end=5000), r"truncated: \d+ bytes|truncated: the \d+ bytes",
         r"pets-0\.tar:", "copy it again"),
    Case("an archive that is compressed", archive("pets-0.tar", packed=True), "not a TAR archive, but gzip",
         r"pets-0\.tar:", "unpack it with gunzip"),
    Case("an archive without labels", archive("pets-0.tar", labels=False), "has no label", r"pets-0\.tar: cat/00:",
         r"a file \.cls with a number is expected"),
    Case("a broken picture, verified",
         lambda s: [s.pictures("pets"), s.write("pets/cat/00.png", b"\x89PNG\r\n\x1a\nnothing"), "data", "verify",
                    "images:pets"][2:], "PNG: 15 bytes, broken off", r"pets/cat/00\.png",
         "repair or remove broken records, or .*on_bad_record=skip", apart=True),
    Case("no picture that can be read, verified",
         lambda s: [s.write("pets/cat/00.png", "GIF89a"), "data", "verify", "images:pets"][1:],
         "neither JPEG nor PNG", r"^pets/cat/00\.png:", "repair or remove broken records", apart=True),
    Case("a sheet over a file that is there",
         lambda s: [s.write("s.png", "mine"), "data", "head", "idx:train-images,train-labels", "--sheet", "s.png"][1:],
         ": exists", r"s\.png:", "give another name, or replace it with --force"),
]
