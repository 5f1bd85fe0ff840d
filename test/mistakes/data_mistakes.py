"""Mistakes with data: where it lies, what it is, how it is said."""
import os

from case import Case, sets, train, words


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
    Case("no file of images", train(("train-images", "nowhere")), "nowhere", "train_data|nowhere",
         "No such file|not there"),
    Case("images and labels exchanged",
         train(('images: "train-images" labels: "train-labels"', 'images: "train-labels" labels: "train-images"')),
         "labels|images", r"train-(labels|images)", "images|labels|expected|exchange"),
    Case("labels of another set", train(('labels: "train-labels"', 'labels: "test-labels"')), "120", "test-labels",
         "600"),
    Case("a file of images cut short", cut("train-images", 0.7), "byte|short|end|truncat", "train-images",
         "expected|should|needs|end"),
    Case("a file of labels that says less", short_labels, "599|600", "train-(labels|images)", "600|599"),
    Case("a key that a SPEC does not have", words("data", "info", "idx:train-images,train-labels?classes=2"),
         "classes", "classes|idx", "there (are|is)|keys|scale"),
    Case("an unknown kind of data", words("data", "info", "csv:table.csv"), "csv", "data|SPEC|kind|csv", "idx, cifar10"),
    Case("a key misspelt in a SPEC", words("data", "info", "images:pets?resise=36"), "resise", r"\?|SPEC|images|key",
         "resize"),
    Case("a scale of words", words("data", "info", "idx:train-images,train-labels?scale=small"), "small", "scale",
         "number"),
    Case("a SPEC without a path", words("data", "info", "idx"), "idx", "idx|SPEC", "path|PATH|expected|:"),
    Case("a folder that is not there", images("pests"), "pests", "pests", "No such file|not there"),
    Case("a folder without pictures",
         lambda s: [s.write("none/readme.txt", "x"), "data", "info", "images:none"][1:],
         "no (picture|class|folder)|folder", "none", "folder.*class|class.*folder"),
    Case("pictures of different sizes", sizes_differ, "20 x 9|9 x 20", r"05\.png", "resize"),
    Case("a text file as a picture", spoil("pets", "dog/03.png", "no picture at all\n"), "PNG|JPEG",
         r"03\.png", "skip|repair|mend|remove|verify|replace"),
    Case("an empty picture", spoil("pets", "dog/03.png", ""), "empty", r"03\.png", "skip|repair|mend|remove|verify|replace"),
    Case("a picture cut short", truncated, "PNG|end|short|truncat", r"07\.png", "skip|repair|mend|remove|verify|replace"),
    Case("a stray file beside the classes",
         spoil("pets", "README.txt", "hello\n", ("--set", "stop.steps=4")), r"README\.txt", "pets",
         "skip|ignor|left out|leaves out", code=(0,)),
    Case("an empty class", empty_class, "emu", "pets", "no picture|empty|without pictures|holds no", code=(0,)),
    Case("all records held out", sets("validation=600"), "600", "validation", "fewer|less|lower|smaller"),
    Case("more held out than there are", sets("validation=6000"), "6000", "validation", "600"),
    Case("a crop larger than the picture", sets("train_data.crop=20"), "20|12", "crop", "12|smaller|at most"),
    Case("a mean of other channels", train(("scale: 0.00390625", "mean: 1 mean: 2 mean: 3")), "3|mean",
         "mean", "channel|1"),
    Case("a mean file that is not there", sets("train_data.mean_file=nowhere"), "nowhere", "mean_file|nowhere",
         "No such file|not there"),
    Case("a batch larger than the data", sets("batch=601"), "601", "batch", "600", code=(0, 2)),
    Case("pixels that are not scaled", unscaled, "scale|255|range", "train_data|input|pixel|data", "scale", code=(0,)),
    Case("a label beyond the outputs",
         lambda s: [s.idx("train", 600, classes=9), "train", "x.job", "--out", "run"][1:], "label [3-8]",
         "train|label|record", "num_output|outputs|classes"),
    Case("a missing batch of CIFAR",
         lambda s: [s.write("cifar/data_batch_1.bin", bytes(3073)), "data", "info", "cifar10:cifar"][1:],
         r"data_batch_2|test_batch|batches", "cifar", "No such file|missing|expected"),
    Case("an LMDB that is none",
         lambda s: [s.write("db/data.mdb", b"nonsense" * 2000), "data", "info", "lmdb:db"][1:], "LMDB|lmdb|magic|page",
         "db", "LMDB|expected|is no"),
    Case("a broken picture, verified",
         lambda s: [s.pictures("pets"), s.write("pets/cat/00.png", b"\x89PNG\r\n\x1a\nnothing"), "data", "verify",
                    "images:pets"][2:], "PNG", r"00\.png", "repair|remove|on_bad_record|skip|replace"),
    Case("a sheet over a file that is there",
         lambda s: [s.write("s.png", "mine"), "data", "head", "idx:train-images,train-labels", "--sheet", "s.png"][1:],
         r"s\.png", r"s\.png|sheet", "force|another|remove|exists"),
]
