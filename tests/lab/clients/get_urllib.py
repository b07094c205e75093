"""get_urllib.py URL: the standard library of Python as people use it; the environment names the proxy."""
import sys
import urllib.error
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=10) as r:
        sys.stdout.write(r.read().decode())
except urllib.error.HTTPError as e:
    sys.exit("%s\n%s" % (e, e.read().decode()))
except urllib.error.URLError as e:
    sys.exit("%s" % e)
