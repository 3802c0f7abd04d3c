"""How a machine's link is made, in the words of `ip` and `tc`: two virtual interfaces, with a rate on each end."""

from __future__ import annotations

from penstock.cluster.lab.networks import Network
from penstock.cluster.lab.sizes import MachineSize

BRIDGE = "br0"
#: Rows may wait this long at a link before the link drops them; TCP slows down by that.
QUEUE_SECONDS = 0.1
#: A bucket holds at least one of the large packets that the kernel hands to virtual interfaces.
LEAST_BURST = 64 << 10
PACKET = 1500


def switch_lines(address: str) -> list[str]:
    """The middle: the network of driver and master is the switch to which all machines are linked."""
    return [
        "link set lo up",
        f"link add {BRIDGE} type bridge mcast_snooping 0",
        f"addr add {address}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]


def link_lines(address: str, port: str, switch: Network) -> list[str]:
    """In a machine's network: its interface, whose other end is a port of the switch."""
    return [
        "link set lo up",
        f"link add eth0 type veth peer name {port} netns {switch.path}",
        f"addr add {address}/24 dev eth0",
        "link set eth0 up",
    ]


def shaping(device: str, size: MachineSize, latency: float) -> list[str]:
    """The rate of one end of a link, and its half of the latency: rows pass two ends from a machine to another."""
    rate = size.link_bits_per_second
    # A hundredth of a second of rows: the clock of a kernel may be no finer.
    burst = max(LEAST_BURST, round(rate / 8 / 100))
    queue = f"latency {QUEUE_SECONDS * 1e3:.0f}ms"
    lines = [f"qdisc add dev {device} root handle 1: tbf rate {rate:.0f}bit burst {burst} {queue}"]
    if latency > 0:
        waiting = round(rate / 8 * (latency + QUEUE_SECONDS) / PACKET) + 100
        lines.append(
            f"qdisc add dev {device} parent 1:1 handle 10: netem delay {latency / 2 * 1e6:.0f}us limit {waiting}"
        )
    return lines
