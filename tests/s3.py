"""Runs the tests of stores in S3 on a local server, moto. `cargo xtask test --long` starts it."""

import logging
import os
import subprocess
import sys

PACKAGE = "moto[server]==5.2.5"
PLACE = os.path.abspath("target/moto")
BUCKET = "routines"
TESTS = [
    ["cargo", "test", "-p", "routines", "--features", "s3", "--lib", "--", "store::"],
    ["cargo", "test", "-p", "taskwork-store", "--all-features", "--lib", "--", "--include-ignored"],
]


def install():
    """Installs the server, unless it is there, and returns whether it is there."""
    if os.path.isdir(os.path.join(PLACE, "moto")):
        return True
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return subprocess.call([*pip, "--target", PLACE, PACKAGE]) == 0


def main():
    if not install():
        print(f"\n!!! WARNING: {PACKAGE} cannot be installed: stores in S3 are NOT CHECKED", file=sys.stderr)
        return os.environ.get("CI") == "true"
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    sys.path.insert(0, PLACE)
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    logging.getLogger("werkzeug").setLevel("ERROR")
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=BUCKET)
    os.environ |= {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", "ROUTINES_TEST_S3": f"s3://{BUCKET}"}
    return any([subprocess.call(test) for test in TESTS])


if __name__ == "__main__":
    sys.exit(main())
