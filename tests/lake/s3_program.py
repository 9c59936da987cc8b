"""Run by the Python of the S3 server's own environment: a server with one bucket and one user.

It prints how to sign in, and ends when its standard input does. Whoever signs in otherwise is
refused.
"""

from __future__ import annotations

import json
import logging
import os
import sys

SET_UP = 4  # so many calls, those of `main`, need no credentials
os.environ |= {
    "INITIAL_NO_AUTH_ACTION_COUNT": str(SET_UP),
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_DEFAULT_REGION": "us-east-1",
}

import boto3  # type: ignore[import-not-found]  # noqa: E402
from moto.server import ThreadedMotoServer  # type: ignore[import-not-found]  # noqa: E402

ALL = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
}


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=address).create_bucket(Bucket="lake")
    users = boto3.client("iam", endpoint_url=address)
    users.create_user(UserName="penstock")
    key = users.create_access_key(UserName="penstock")["AccessKey"]
    users.put_user_policy(UserName="penstock", PolicyName="all", PolicyDocument=json.dumps(ALL))
    options = {
        "s3.endpoint": address,
        "s3.region": "us-east-1",
        "s3.access-key-id": key["AccessKeyId"],
        "s3.secret-access-key": key["SecretAccessKey"],
    }
    print(json.dumps(options), flush=True)
    sys.stdin.read()


main()
