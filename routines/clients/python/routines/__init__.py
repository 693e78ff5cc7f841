"""Calls functions of a library of routines that runs on a cluster.

    import routines

    with routines.connect("http://127.0.0.1:8790") as r:    # or routines.here(), without a server
        r.call("square@1.0", 12)                        # one call
        job = r.map("square@1.0", range(1000))          # a job of many calls
        for result in job.results(): ...
        job = r.job("j-0000000003")                     # later, or elsewhere
        cases = routines.product(x=range(10**6), y=[0.1, 0.2])
        r.starmap("f@1.0", cases, reduce=["mean"]).reduced()["mean"]
        r.starmap("f@1.0", cases, reduce=["mean"], by="y").groups()
        with r.executor() as executor:                  # a concurrent.futures.Executor
            futures = [executor.submit("square@1.0", n) for n in range(10)]
        r.search("queens@1.0", 12).found()["counts"]    # a tree search, of a class derived from Search
        table = r.put("table", "table.csv")             # a file for all calls, which get its path on their node
        r.starmap("select@1.0", [(table, n) for n in range(10)])

A routine that runs on a node calls another one by `routines.call("square@1.0", 12)`. A long one calls
`routines.checkpoint(state)` at points from which it can continue, and starts from `routines.restored(default)`.
"""

from ._call import call, checkpoint, restored
from ._client import CallError, Client, Job, JobError, RequestError, Result, connect, here
from ._executor import Executor
from ._search import Search
from ._space import Space, lines, product, zipped
from ._values import Resource

__all__ = [
    "CallError",
    "Client",
    "Executor",
    "Job",
    "JobError",
    "RequestError",
    "Resource",
    "Result",
    "Search",
    "Space",
    "call",
    "checkpoint",
    "connect",
    "here",
    "lines",
    "product",
    "restored",
    "zipped",
]
