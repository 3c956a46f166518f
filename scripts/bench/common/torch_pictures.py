"""The networks of `pictures` as PyTorch's users write them: no biases before batch normalization, channels last."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from scripts.bench.common import pictures
from scripts.bench.common.workload import Work

MOMENTUM = 0.1  # of running statistics


class Pictures:
    """What training starts with, its batches, and the loss of one."""

    def __init__(self, work: Work, channels_last: bool) -> None:
        self._layers = pictures.network(work)
        known = pictures.shapes(work, self._layers)
        self.start: list[torch.Tensor] = []
        self._places: dict[str, int] = {}
        drawn = pictures.weights(work, self._layers)
        memory = torch.channels_last if channels_last else torch.contiguous_format
        for layer in self._layers:
            name = layer["Name"]
            if name not in drawn:
                continue
            self._places[name] = len(self.start)
            w = torch.from_numpy(drawn[name])
            if "Kernel" in layer:
                below = known[pictures.sources(layer, "")[0]][0]
                w = w.reshape(len(w), below, *layer["Kernel"]).contiguous(memory_format=memory)
            ones, zeros = torch.ones(len(w)), torch.zeros(len(w))
            self.start += [w, ones, zeros] if layer.get("BatchNormalization") else [w, zeros]
        self._running: dict[str, list[torch.Tensor]] = {}
        device = getattr(work, "device", "cpu")
        for layer in self._layers:
            if layer.get("BatchNormalization"):
                made = torch.zeros(layer["N"]), torch.ones(layer["N"])
                self._running[layer["Name"]] = [array.to(device) for array in made]
        shape = (work.batch, *known["in"])
        self.batches = [
            (
                torch.from_numpy(pictures.as_floats(drawn)).reshape(shape).contiguous(memory_format=memory),
                torch.from_numpy(classes),
            )
            for drawn, classes in pictures.pictures(work)
        ]

    def loss(self, parameters: list[Any], x: Any, classes: Any) -> torch.Tensor:
        """Return the cross entropy."""
        values, before = {"in": x}, "in"
        for layer in self._layers:
            inputs = [values[name] for name in pictures.sources(layer, before)]
            before = layer["Name"]
            values[before] = self._layer(layer, inputs, parameters)
        return F.cross_entropy(values[before], classes)

    def _layer(self, layer: dict[str, Any], inputs: list[Any], parameters: list[Any]) -> torch.Tensor:
        name = layer["Name"]
        if layer["Type"] == "FullyConnected":
            place = self._places[name]
            return F.linear(inputs[0].flatten(1), parameters[place], parameters[place + 1])
        if layer["Type"] == "Convolutional":
            z = self._convolution(layer, inputs[0], parameters[self._places[name] :])
        elif layer["Function"] == "Max":
            z = F.max_pool2d(inputs[0], layer["Kernel"], layer["KernelStride"], layer["Padding"])
        elif layer["Function"] == "GlobalAverage":
            z = inputs[0].mean((2, 3), keepdim=True)
        else:
            z = inputs[0] + inputs[1]
        return F.relu(z) if layer["Activation"] == "Relu" else z

    def _convolution(self, layer: dict[str, Any], x: Any, own: list[Any]) -> torch.Tensor:
        normed = layer.get("BatchNormalization")
        z = F.conv2d(x, own[0], None if normed else own[1], layer["KernelStride"], layer["Padding"])
        if normed:
            z = F.batch_norm(z, *self._running[layer["Name"]], own[1], own[2], training=True, momentum=MOMENTUM)
        return z
