"""Certificates for tests: made by the openssl program, in a folder that goes away.

    with Certificates() as certificates: certificates.pair("server"), certificates.path("ca.crt")
"""
import pathlib
import ssl
import subprocess
import tempfile

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_certificates(folder):
    """An authority, a server's pair in two kinds of key, another pair, an encrypted key."""
    openssl(folder, "req", "-x509", *CURVE, "-nodes", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt", "-subj",
            "/CN=test authority")
    (pathlib.Path(folder) / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, key, days in (("server", CURVE, "2"), ("rsa", ("-newkey", "rsa:2048"), "2"), ("other", CURVE, "2"),
                            ("later", CURVE, "9")):
        openssl(folder, "req", *key, "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", days, "-extfile", "names", "-out", f"{name}.crt")
    openssl(folder, "pkey", "-in", "server.key", "-aes256", "-passout", "pass:word", "-out", "locked.key")


class Certificates:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-tls-")
        make_certificates(self.folder.name)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def path(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def pair(self, name="server"):
        return self.path(f"{name}.crt"), self.path(f"{name}.key")

    def context(self, *alpn):
        context = ssl.create_default_context(cafile=self.path("ca.crt"))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context
