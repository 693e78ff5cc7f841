"""Runs a pipeline of 200 samples in several systems, alternately, and prints the figures of all rounds as JSON.

`measure.py ROUNDS FLOW [SYSTEM=PYTHON]…`, where PYTHON has the system `snakemake` or `hyperqueue`. Each system has two workers
on this machine. The programs are stubs that only take time. One more run loses its master after 150 commands, and is
continued: the figure is the number of commands that ran more than once.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SAMPLES = 200
REGIONS = ["chr1", "chr2", "chr3"]
COMMANDS = 2 * SAMPLES + 1 + len(REGIONS)
LOST_AFTER = 150
SECONDS_MAX = 600

STUB = """#!/bin/sh
echo "$0 $*" >> "$LOG"
sleep {seconds}
echo done
"""

FLOW = """[each]
sample = "samples/*.fq"
region = ["chr1", "chr2", "chr3"]

[task.align]
in = ["samples/{sample}.fq"]
out = ["sam/{sample}.sam"]
run = "align {in} > {out}"

[task.sort]
in = ["sam/{sample}.sam"]
out = ["bam/{sample}.bam"]
run = "sort-bam {in} > {out}"

[task.merge]
in = ["bam/{sample}.bam"]
out = ["all.bam"]
run = "merge {in} > {out}"

[task.call]
in = ["all.bam"]
out = ["calls/{region}.vcf"]
run = "call {region} {in} > {out}"
"""

SNAKEMAKE = """SAMPLES = glob_wildcards("samples/{sample}.fq").sample

rule all:
    input: expand("calls/{region}.vcf", region=["chr1", "chr2", "chr3"])

rule align:
    input: "samples/{sample}.fq"
    output: "sam/{sample}.sam"
    shell: "align {input} > {output}"

rule sort:
    input: "sam/{sample}.sam"
    output: "bam/{sample}.bam"
    shell: "sort-bam {input} > {output}"

rule merge:
    input: expand("bam/{sample}.bam", sample=SAMPLES)
    output: "all.bam"
    shell: "merge {input} > {output}"

rule call:
    input: "all.bam"
    output: "calls/{region}.vcf"
    shell: "call {wildcards.region} {input} > {output}"
"""

HYPERQUEUE = """import glob, os
from pathlib import Path
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

for folder in ["sam", "bam", "calls"]:
    os.makedirs(folder, exist_ok=True)
job = Job(default_workdir=Path.cwd(), default_env=dict(os.environ))
shell = lambda command, *deps: job.program(["sh", "-c", command], deps=deps, stdout=None, stderr=None)
sorts = []
for path in sorted(glob.glob("samples/*.fq")):
    sample = Path(path).stem
    align = shell(f"align {path} > sam/{sample}.sam")
    sorts.append(shell(f"sort-bam sam/{sample}.sam > bam/{sample}.bam", align))
merge = shell("merge bam/*.bam > all.bam", *sorts)
for region in ["chr1", "chr2", "chr3"]:
    shell(f"call {region} all.bam > calls/{region}.vcf", merge)
with LocalCluster(worker_config=WorkerConfig(cores=2)) as cluster:
    client = cluster.client()
    client.wait_for_jobs([client.submit(job)])
"""


class System:
    """A system with a job file, whose master is a process that the same command replaces after its loss."""

    name, text, file = "flow", FLOW, "job.toml"

    def __init__(self, program):
        self.program = program

    def command(self):
        return [self.program, "solve", self.file, "--workers", "2", "--quiet"]

    def begin(self, folder, environment):
        null = subprocess.DEVNULL
        return subprocess.Popen(self.command(), cwd=folder, env=environment, stdout=null, stderr=null)

    def resume(self, folder, environment):
        return self.begin(folder, environment)


class Snakemake(System):
    name, text, file = "snakemake", SNAKEMAKE, "Snakefile"

    def command(self, *more):
        return [self.program, "-m", "snakemake", "--cores", "2", "--quiet", "all", "--rerun-incomplete", *more]

    def resume(self, folder, environment):
        subprocess.run(self.command("--unlock"), cwd=folder, env=environment, check=True)
        return self.begin(folder, environment)


class HyperQueue(System):
    """Its package has a server and workers for a process, without a journal."""

    name, text, file = "hyperqueue", HYPERQUEUE, "job.py"

    def command(self):
        return [self.program, self.file]


def wait_for(condition):
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition was not met in time")
        time.sleep(0.02)


def run(system, is_lost=False):
    """Returns the seconds of a run, and the number of commands that ran."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for stub, seconds in [("align", 0.1), ("sort-bam", 0.05), ("merge", 0.1), ("call", 0.1)]:
            path = folder / "bin" / stub
            path.parent.mkdir(exist_ok=True)
            path.write_text(STUB.format(seconds=seconds))
            path.chmod(0o755)
        (folder / "samples").mkdir()
        for number in range(SAMPLES):
            (folder / f"samples/s{number:03}.fq").write_text(f"{number}\n")
        (folder / system.file).write_text(system.text)
        log = folder / "log"
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "LOG": str(log)}
        ran = lambda: len(log.read_text().splitlines()) if log.exists() else 0
        start = time.monotonic()
        master = system.begin(folder, environment)
        if is_lost:
            wait_for(lambda: ran() >= LOST_AFTER)
            master.kill()
            master.wait()
            master = system.resume(folder, environment)
        if master.wait(SECONDS_MAX) != 0:
            raise RuntimeError(f"{system.name} has failed")
        seconds = time.monotonic() - start
        missing = [region for region in REGIONS if not (folder / f"calls/{region}.vcf").exists()]
        if missing or ran() < COMMANDS:
            raise RuntimeError(f"{system.name} has not run all commands: {ran()} of {COMMANDS}, {missing}")
        return seconds, ran()


def main(rounds, flow, *others):
    kinds = {"snakemake": Snakemake, "hyperqueue": HyperQueue}
    systems = [System(flow), *(kinds[name](python) for name, python in (other.split("=", 1) for other in others))]
    figures = {f"{system.name}_lines": [len(system.text.splitlines())] for system in systems}
    for number in range(rounds):
        for system in systems:
            seconds, _ = run(system)
            figures.setdefault(f"{system.name}_s", []).append(seconds)
            _, ran = run(system, is_lost=True)
            figures.setdefault(f"{system.name}_repeated", []).append(ran - COMMANDS)
            print(number, system.name, seconds, ran - COMMANDS, file=sys.stderr)
    print(json.dumps(figures))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(int(sys.argv[1]), *sys.argv[2:])
