"""What the package managers fetch: one small package for each, with its index, made by hand.

make(www, git) writes under the folder served by files.example.org and the folder of the git server; both are the lab's
own and vanish with it. Everything in a package is in SECRET: a client has fetched the right bytes when it has that.
"""
import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile

NAME, VERSION = "egress-lab-demo", "1.2.3"
MODULE = NAME.replace("-", "_")
SECRET = "the right bytes: " + hashlib.sha256(b"egress lab").hexdigest()
SITE = "files.example.org"
REPOSITORY = "demo.git"
BLOB = b"".join(hashlib.sha512(b"%d" % i).digest() for i in range(1 << 14))  # 1 MiB that no compression shrinks


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def run(*words, **more):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, **more)
    if done.returncode:
        raise RuntimeError("%s: %s" % (" ".join(words), done.stdout))


def apt(www, scratch):
    """A flat repository without a signature: InRelease is missing, Release names the hash of Packages."""
    control = ["Package: " + NAME, "Version: " + VERSION, "Architecture: all", "Maintainer: Lab <lab@example.org>",
               "Description: a package of the lab"]
    write(scratch + "/deb/DEBIAN/control", "\n".join(control) + "\n")
    write(scratch + "/deb/usr/share/%s/secret" % NAME, SECRET + "\n")
    name = "%s_%s_all.deb" % (NAME, VERSION)
    os.makedirs(www + "/apt")
    run("dpkg-deb", "--root-owner-group", "--build", scratch + "/deb", "%s/apt/%s" % (www, name))
    with open("%s/apt/%s" % (www, name), "rb") as f:
        deb = f.read()
    entry = control + ["Filename: ./" + name, "Size: %d" % len(deb), "SHA256: " + hashlib.sha256(deb).hexdigest()]
    packages = ("\n".join(entry) + "\n").encode()
    write(www + "/apt/Packages", packages)
    write(www + "/apt/Release", "Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n" % (
        hashlib.sha256(packages).hexdigest(), len(packages)))


def wheel():
    """A wheel is a zip of the module and its metadata; RECORD lists the hash of each file but itself."""
    info = "%s-%s.dist-info" % (MODULE, VERSION)
    files = {
        MODULE + ".py": "SECRET = %r\n" % SECRET,
        info + "/METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (NAME, VERSION),
        info + "/WHEEL": "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        record.append("%s,sha256=%s,%d" % (name, digest.decode().rstrip("="), len(text)))
    files[info + "/RECORD"] = "\n".join(record + [info + "/RECORD,,"]) + "\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
    return out.getvalue()


def pip(www):
    """The simple index (PEP 503): a page for each project, with links."""
    name, data = "%s-%s-py3-none-any.whl" % (MODULE, VERSION), wheel()
    write("%s/simple/%s/%s" % (www, NAME, name), data)
    write("%s/simple/%s/index.html" % (www, NAME), '<!DOCTYPE html><title>%s</title><a href="%s#sha256=%s">%s</a>\n' % (
        NAME, name, hashlib.sha256(data).hexdigest(), name))


def npm(www):
    """A registry for each scheme, as the address of the archive in the metadata is absolute."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in (("package.json", json.dumps({"name": NAME, "version": VERSION, "main": "index.js"})),
                           ("index.js", "module.exports = %s;\n" % json.dumps(SECRET))):
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(text)
            t.addfile(entry, io.BytesIO(text.encode()))
    archive = out.getvalue()
    write("%s/npm/archives/%s-%s.tgz" % (www, NAME, VERSION), archive)
    for scheme in ("http", "https"):
        dist = {"tarball": "%s://%s/npm/archives/%s-%s.tgz" % (scheme, SITE, NAME, VERSION),
                "shasum": hashlib.sha1(archive).hexdigest(),
                "integrity": "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()}
        versions = {VERSION: {"name": NAME, "version": VERSION, "dist": dist}}
        write("%s/npm/%s/%s" % (www, scheme, NAME), json.dumps(
            {"name": NAME, "dist-tags": {"latest": VERSION}, "versions": versions}))


def git(folder, scratch):
    """A bare repository that may be pushed to."""
    env = dict(os.environ, HOME=scratch, GIT_CONFIG_NOSYSTEM="1", GIT_AUTHOR_NAME="Lab", GIT_COMMITTER_NAME="Lab",
               GIT_AUTHOR_EMAIL="lab@example.org", GIT_COMMITTER_EMAIL="lab@example.org")
    tree, bare = scratch + "/tree", "%s/%s" % (folder, REPOSITORY)
    write(tree + "/secret", SECRET + "\n")
    write(tree + "/blob", BLOB)
    run("git", "init", "-q", "-b", "main", tree, env=env)
    run("git", "-C", tree, "add", ".", env=env)
    run("git", "-C", tree, "commit", "-q", "-m", "start", env=env)
    run("git", "clone", "-q", "--bare", tree, bare, env=env)
    run("git", "-C", bare, "config", "http.receivepack", "true", env=env)


def make(www, folder_of_git, scratch):
    write(www + "/secret", SECRET + "\n")
    apt(www, scratch)
    pip(www)
    npm(www)
    git(folder_of_git, scratch)
