"""Who leaves? A small network by region in PyTorch: it reports and saves each epoch, and goes on where it was."""

import sys
from pathlib import Path

import numpy as np
import torch

from regiondag.trial import load, report

trial = load(width=16, learning_rate=0.01, weight_decay=0.01)
values, saved, begun = trial["hyperparameters"], Path(trial["checkpoint"], "state.pt"), 0
torch.manual_seed(trial["seed"])

table = torch.from_numpy(np.loadtxt(sys.argv[1], delimiter=",", skiprows=1, dtype=np.float32))
x, y = (table[:, :-1] - table[:, :-1].mean(0)) / table[:, :-1].std(0), table[:, -1:]
known, kept = len(table) // 2, len(table) * 3 // 4
# What decides is the third quarter; the champion learns from it, too, and is tested on the fourth.
learned, judged = (slice(known), slice(known, kept)) if trial["role"] == "tune" else (slice(kept), slice(kept, None))

layers = torch.nn.Linear(x.shape[1], values["width"]), torch.nn.ReLU(), torch.nn.Linear(values["width"], 1)
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters(), values["learning_rate"], weight_decay=values["weight_decay"])
if saved.exists():  # from an earlier start of this job, on this machine or another
    begun, *states = torch.load(saved, weights_only=True)
    model.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])

for epoch in range(begun + 1, trial["epochs"] + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x[learned]), y[learned])
    loss.backward()
    optimizer.step()
    scores, left = model(x[judged]).detach(), y[judged] > 0
    report(epoch=epoch, auc=(scores[left][:, None] > scores[~left]).float().mean(), loss=loss.detach())
    torch.save((epoch, model.state_dict(), optimizer.state_dict()), f"{saved}.part")
    Path(f"{saved}.part").replace(saved)  # whole or not at all, and reported before, whenever the job is stopped
torch.save(model.state_dict(), Path(trial["artifact"], "model.pt"))
