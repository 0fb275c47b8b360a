"""weir serve for the blocks of a page: real servers, started when first needed, one for each set of options.

    home = Home(scratch folder, build folder)
    server = home.server(["--policies", "policies.yaml"])
    text = server.there(text)        what the page calls port 7311 is this server's port
    printed = server.back(printed)   and the other way round

The tools of redis_home go first on PATH for such blocks; redis-cli speaks to that server.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import redis_home  # noqa: E402
from lib import weir_server

PORT = "7311"


class Dressed(weir_server.Server):
    """A server in the page's folder, and how the page speaks of it."""

    def __init__(self, folder, options):
        super().__init__(options)
        self.folder.rmdir()
        self.folder = folder

    def there(self, text):
        return re.sub(rf"\b{PORT}\b", str(self.port), redis_home.patient(text))

    def back(self, text):
        return re.sub(rf"\b{self.port}\b", PORT, text)


class Home:
    def __init__(self, folder, build):
        self.folder, self.build, self.servers = pathlib.Path(folder), build, {}

    def close(self):
        for server in self.servers.values():
            server.kill()

    def server(self, options):
        key = " ".join(options)
        if key not in self.servers:
            self.servers[key] = Dressed(self.folder, options).start()
        return self.servers[key]

    def check_yaml(self, block, env):
        """Writes a page's file and has `weir check` read it; None, or what is wrong, and what it printed."""
        refused = "refused" in block.flags
        name = next((flag for flag in block.flags if flag != "refused"), "policies.yaml")
        (self.folder / name).write_text(block.text(), encoding="utf-8")
        done = subprocess.run([str(self.build / "weir"), "check", name], cwd=self.folder, env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        wrong = done.returncode != (2 if refused else 0)
        return f"weir check ended with {done.returncode}\n{done.stdout}" if wrong else None, done.stdout
