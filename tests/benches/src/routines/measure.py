"""Measures calls in one system, and prints the figures of all rounds as JSON: `measure.py SYSTEM ROUNDS [ARGUMENT]…`.

All systems have two processes for calls, on this machine.
"""

import http.client
import json
import os
import subprocess
import sys
import time

ONE_BY_ONE = 1_000
TOGETHER = 10_000
MILLION = 10**6
QUEENS = {12: 14_200, 13: 73_712}


def empty(_):
    return None


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def quantiles(times):
    """The median, and the slowest in a hundred."""
    times = sorted(times)
    return times[len(times) // 2], times[len(times) * 99 // 100]


def empty_calls(figures, call, many):
    """Measures empty calls one after another, and many at a time."""
    times = [1e3 * seconds(call) for _ in range(ONE_BY_ONE)]
    p50, p99 = quantiles(times)
    add(figures, call_ms=p50, slow_call_ms=p99, rate=TOGETHER / seconds(lambda: many(TOGETHER)))


def add(figures, **new):
    for name, value in new.items():
        figures.setdefault(name, []).append(value)


def dask(rounds):
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:

        def many(calls):
            client.gather(client.map(empty, range(calls), pure=False))

        yield from rounds_of(rounds, lambda: client.submit(empty, 0, pure=False).result(), many)


def ray(rounds):
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(empty)
    one = lambda: ray.get(remote.remote(0))
    yield from rounds_of(rounds, one, lambda calls: ray.get([remote.remote(n) for n in range(calls)]))


def parsl(rounds):
    import parsl
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    # It starts its programs by name.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    provider = LocalProvider(init_blocks=1, max_blocks=1)
    executor = HighThroughputExecutor(max_workers_per_node=2, address="127.0.0.1", provider=provider, encrypted=False)
    with parsl.load(parsl.Config(executors=[executor], initialize_logging=False, usage_tracking=0)):
        app = parsl.python_app(empty)

        def many(calls):
            for future in [app(n) for n in range(calls)]:
                future.result()

        yield from rounds_of(rounds, lambda: app(0).result(), many)


def rounds_of(rounds, call, many):
    """The first round does not count."""
    for each in range(rounds + 1):
        figures = {}
        empty_calls(figures, call, many)
        if each:
            yield figures


def processor(nodes):
    """The processor time of nodes and their children, in seconds."""
    ticks = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if entry in nodes:
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] in nodes:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Rest:
    """A kept connection to a gateway, which is opened when it is used first."""

    def __init__(self, url):
        self.connection = http.client.HTTPConnection(url)

    def call(self):
        headers = {"content-type": "application/json"}
        self.connection.request("POST", "/v1/routines/empty@1.0/call", '{"argument":[0]}', headers)
        answer = self.connection.getresponse().read()
        assert json.loads(answer)["value"] is None, answer


def routines(rounds, client_folder, package, one_url, one_nodes, two_url, two_nodes):
    sys.path.insert(0, client_folder)
    import routines

    one, two, rest = routines.Client(f"http://{one_url}"), routines.Client(f"http://{two_url}"), Rest(two_url)
    os.environ["PYTHONPATH"] = client_folder
    loop = [sys.executable, "-c", "import package; print(sum(map(package.pi, range(package.PARTS))))"]

    def many(client, calls):
        client.map("empty@1.0", range(calls)).wait()

    def search(client, nodes, n):
        before, start = processor(nodes), time.perf_counter()
        counts = client.search("queens@1.0", n).found()["counts"]
        assert counts["solutions"] == QUEENS[n], counts
        return time.perf_counter() - start, processor(nodes) - before

    for each in range(rounds + 1):
        figures = {}
        add(figures, warm_us=quantiles(one.call("nested@1.0", ONE_BY_ONE))[0])
        # The gateway closes idle connections.
        rest.connection.close()
        p50, p99 = quantiles([1e3 * seconds(rest.call) for _ in range(ONE_BY_ONE)])
        add(figures, rest_ms=p50, slow_rest_ms=p99)
        empty_calls(figures, lambda: two.call("empty@1.0", 0), lambda calls: many(two, calls))
        small = lambda: len(two.map("empty@1.0", range(100)).values())
        add(figures, small_s=sorted(seconds(small) for _ in range(9))[4])
        add(figures, million_rate=MILLION / seconds(lambda: many(two, MILLION)))
        parts = []
        job = seconds(lambda: parts.extend(one.map("pi@1.0", range(100)).values()))
        assert abs(sum(parts) - 3.141592653589793) < 1e-9, sum(parts)
        by_hand = seconds(lambda: subprocess.run(loop, cwd=package, check=True, stdout=subprocess.DEVNULL))
        add(figures, pi_more_s=job - by_hand, pi_loop_s=by_hand)
        counts = one.search("polls@1.0", 20).found()["counts"]
        add(figures, poll_share=(counts["with"] - counts["without"]) / counts["polls"] / 10)
        for n in QUEENS:
            (alone, alone_processor), (both, both_processor) = (
                search(one, one_nodes.split(","), n),
                search(two, two_nodes.split(","), n),
            )
            add(figures, **{f"queens_{n}": alone / both, f"queens_{n}_processor": both_processor / alone_processor})
            add(figures, **{f"queens_{n}_s": alone})
        if each:
            yield figures


def main():
    system, rounds, *rest = sys.argv[1:]
    all_figures = {}
    for figures in {"dask": dask, "parsl": parsl, "ray": ray, "routines": routines}[system](int(rounds), *rest):
        for name, values in figures.items():
            all_figures.setdefault(name, []).extend(values)
        print(figures, file=sys.stderr)
    print(json.dumps(all_figures))


if __name__ == "__main__":
    main()
