#!/bin/sh
# On the machine under test: a job must not reach the metadata service, or it could take the credentials of its role.
/usr/local/libexec/regiondag/python - <<'PYTHON' || exit 9
import sys
import urllib.error
import urllib.request

request = urllib.request.Request("http://169.254.169.254/latest/api/token", method="PUT")
request.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
try:
    urllib.request.urlopen(request, timeout=3)
except urllib.error.HTTPError as error:
    sys.exit(f"a job can reach the metadata service, which answers it {error.code}")
except OSError as error:
    print("the metadata service is out of a job's reach:", error)
else:
    sys.exit("a job can reach the metadata service, and with it the credentials of the worker's role")
PYTHON
exec sh ./train.sh "$1" gpu
