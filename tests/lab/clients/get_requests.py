"""get_requests.py URL: the requests package; the environment names the proxy."""
import sys

import requests

try:
    r = requests.get(sys.argv[1], timeout=10)
    r.raise_for_status()
    sys.stdout.write(r.text)
except requests.RequestException as e:
    body = e.response.text if e.response is not None else ""
    sys.exit("%s: %s\n%s" % (type(e).__name__, e, body))
