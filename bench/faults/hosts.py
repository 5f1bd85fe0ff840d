"""Hosts on one machine, each a network namespace, all on one switch. Needs root."""
import os
import subprocess


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def why_not():
    """None, or why there are no namespaces here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        if ip("netns", "add", "paceline-try", check=False).returncode != 0:
            return "no network namespaces can be made here"
        ip("netns", "del", "paceline-try")
    except FileNotFoundError:
        return "ip is missing: apt-get install iproute2"
    return None


class Hosts:
    """Host 0 … n - 1, at 10.78.0.1 and so on."""

    def __init__(self, n):
        self.prefix, self.n = f"paceline-{os.getpid()}", n
        switch = f"{self.prefix}-switch"
        try:
            ip("netns", "add", switch)
            ip("-n", switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", switch, "link", "set", "bridge", "up")
            for host in range(n):
                self.make(switch, host)
        except BaseException:  # remove everything made so far, on any exit
            self.remove()
            raise

    def make(self, switch, host):
        name = f"{self.prefix}-{host}"
        ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{host}",
           "netns", switch)
        ip("-n", switch, "link", "set", f"port{host}", "master", "bridge", "up")
        ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        # Linux's default, also where this machine has another: BBR does not fill a shaped link.
        ip("-n", name, "route", "replace", "10.78.0.0/24", "dev", "eth0", "src", self.address(host),
           "congctl", "cubic")

    @staticmethod
    def address(host):
        return f"10.78.0.{host + 1}"

    def enter(self, host):
        """The prefix of a command that runs there."""
        return ["ip", "netns", "exec", f"{self.prefix}-{host}"]

    def shape(self, rate):
        """Limit what each host sends and receives to `rate`, as 100mbit."""
        for host in range(self.n):
            bucket = ["root", "tbf", "rate", rate, "burst", "128kb", "latency", "20ms"]
            for space, device in (f"{self.prefix}-{host}", "eth0"), (f"{self.prefix}-switch", f"port{host}"):
                subprocess.run(["tc", "-n", space, "qdisc", "replace", "dev", device, *bucket], check=True)

    def link(self, host, up):
        """Connect or pull the cable, without a notice to any process."""
        ip("-n", f"{self.prefix}-switch", "link", "set", f"port{host}", "up" if up else "down")

    def remove(self):
        for name in [f"{self.prefix}-{host}" for host in range(self.n)] + [f"{self.prefix}-switch"]:
            ip("netns", "del", name, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()
