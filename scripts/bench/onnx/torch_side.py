"""Export a network of torchvision: python torch_side.py NAME EXPORTER FILE. Runs in an environment that has it."""

from __future__ import annotations

import sys
import warnings

import torch
import torchvision

SEED = 1


def draw(name: str) -> torch.nn.Module:
    """Return a network with random weights and statistics."""
    torch.manual_seed(SEED)
    network = getattr(torchvision.models, name)(weights=None)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.2)
            layer.running_var.uniform_(0.5, 2)
            with torch.no_grad():
                layer.weight.uniform_(0.5, 1.5)
                layer.bias.normal_(0, 0.2)
    return network.eval()


def export(name: str, exporter: str, file: str) -> None:
    """Write the graph: by TorchScript with batch normalization folded into weights or kept, or by torch.export."""
    images = (torch.randn(2, 3, 224, 224),)
    if exporter == "dynamo":
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(draw(name), images, file, dynamo=True, dynamic_shapes=shapes)
        return
    more = {}
    if exporter == "kept":
        more = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    axes = {"images": {0: "batch"}}
    torch.onnx.export(draw(name), images, file, dynamo=False, input_names=["images"], dynamic_axes=axes, **more)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    export(*sys.argv[1:])
