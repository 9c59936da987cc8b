import time
import pytest
from tests.pipeline.steps.workshop import *
from penstock.pipeline import frames

def test_probe(workshop, monkeypatch):
    pipe = Pipeline("p")
    pipe.queue("a")
    @pipe.stream(inputs="a", output="b", limit=2)
    def f(a): return renumbered(numbered(a), "n * 10")
    workshop.write("a", *range(10))
    t=time.time()
    for r in workshop.steps(pipe): print(r, time.time()-t); t=time.time()
    print(workshop.numbers("b"), workshop.messages("b")[0])
    monkeypatch.setattr(frames, "SMALL", 0)
    workshop.write("a", *range(10,20))
    t=time.time()
    for r in workshop.steps(pipe): print(r, time.time()-t); t=time.time()
    print(workshop.numbers("b"))
    for r in workshop.records(pipe)[:4]: print(r)
