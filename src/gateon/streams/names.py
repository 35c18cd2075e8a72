"""The streams by name, each described in a line."""

__all__ = ["ABOUT"]

ABOUT = {
    "permuted-mnist": "Handwritten digits; each task permutes the pixels in its own way.",
    "rotated-mnist": "Handwritten digits; each task rotates the images by its own angle.",
    "shuffled-mnist": "Handwritten digits; each task permutes the labels in its own way.",
    "split-mnist": "Handwritten digits; each task tells a few of the ten digits apart.",
    "split-cifar10": "Photographs; each task tells a few of CIFAR-10's classes apart.",
    "split-cifar100": "Photographs; each task tells a few of CIFAR-100's classes apart.",
    "asc": "Sentences about 19 products, one per task: what is said of an aspect, good or bad?",
    "dsc": "Reviews of ten kinds of products, one per task: positive or negative?",
    "news20": "Posts to 20 newsgroups, two per task: which of the two is a post from?",
    "made-reviews": "Generated reviews of five products, one per task: praise or blame?",
    "own:PATH": "Your own tasks: npz files, folders of images, or JSON lines with features.",
    "text:PATH": "Your own texts: JSON lines with text, label and, if any, second, task and split.",
}
