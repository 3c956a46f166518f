#!/bin/sh
# On the machine under test: a job must not reach the metadata service, or it could take the credentials of its role.
metadata=http://169.254.169.254/latest/api/token
if curl --silent --max-time 3 --request PUT --header "X-aws-ec2-metadata-token-ttl-seconds: 60" "$metadata" >/dev/null; then
    echo "a job can reach the metadata service, and with it the credentials of the worker's role" >&2
    exit 9
fi
exec sh ./train.sh "$1" gpu
