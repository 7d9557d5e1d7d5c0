"""Devices and the kernel's own files. Nothing here would do harm if it got through: it asks, or writes what is there."""

from tests.attacks.attack import SECRETS, WRITES, Attack, worked

_SAME = 'V=$(cat {file}) && echo "$V" > {file}'
_CALL = '$PYTHON -c "import ctypes,os; r=ctypes.CDLL(None,use_errno=True).syscall({call}); exit(r < 0 and ctypes.get_errno() in (1, 13, 38))"'
_SETTINGS = (
    "kernel/core_pattern",
    "kernel/modprobe",
    "kernel/hostname",
    "vm/overcommit_memory",
    "fs/suid_dumpable",
)
_DEVICES = ("mem", "kmem", "port", "kmsg", "loop0", "vda", "sda", "nvme0n1", "loop-control")
_SECRET_SEEN = ("kcore", "kmsg", "1/environ", "1/root/etc/shadow")

_CALLED = {
    "sysrq": "sysrq-trigger",
    "uevent-helper": "uevent_helper",
    "sys-attribute": "transparent_hugepage/enabled",
    "cgroup": "cgroup.procs",
    "make-device": "mknod",
    "module": "init_module",
    "kexec": "kexec_load",
    "swap": "swapon",
    "hostname": "sethostname",
    "clock": "clock_settime",
    "handle": "open_by_handle_at",
    "pivot": "pivot_root",
    "set-namespace": "/proc/1/ns",
    "chroot-out": "chroot",
}
"""How the program names what is not a path of the attack's own name."""
_AT = {
    "sysrq": "/proc/sysrq-trigger",
    "uevent-helper": "/sys/kernel/uevent_helper",
    "sys-attribute": "/sys/kernel/mm/transparent_hugepage/enabled",
}


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    found = [
        _attack(f"setting-{name.replace('/', '-')}", _SAME.format(file=f"/proc/sys/{name}"), WRITES)
        for name in _SETTINGS
    ]
    found += [
        _attack(
            f"device-{way}-{name}",
            f"$PYTHON -c \"import os; os.open('/dev/{name}', os.O_{way.upper()}); exit(os.path.isfile('/dev/{name}'))\"",
            SECRETS,
        )
        for name in _DEVICES
        for way in ("rdonly", "rdwr")
    ]
    found += [
        _attack(f"proc-{name.replace('/', '-')}", f"head -c 1 /proc/{name} | grep -q .", SECRETS)
        for name in _SECRET_SEEN
    ]
    found += [
        _attack("sysrq", "$PYTHON -c \"import os; os.open('/proc/sysrq-trigger', os.O_WRONLY)\"", WRITES),
        _attack(
            "uevent-helper",
            "$PYTHON -c \"import os; os.open('/sys/kernel/uevent_helper', os.O_WRONLY)\"",
            WRITES,
        ),
        _attack(
            "sys-attribute",
            "$PYTHON -c \"import os; os.open('/sys/kernel/mm/transparent_hugepage/enabled', os.O_WRONLY)\"",
            WRITES,
        ),
        _attack(
            "cgroup",
            "$PYTHON -c \"import glob,os; os.open(glob.glob('/sys/fs/cgroup/**/cgroup.procs', recursive=True)[0], os.O_WRONLY)\"",
            WRITES,
        ),
        _attack("make-device", "mknod made-device b 7 0", WRITES),
        _attack("mount", "mkdir -p m && mount -t tmpfs none m", WRITES),
        _attack("reboot", _CALL.format(call="169, 0, 0, 0, 0"), WRITES),
        _attack("module", _CALL.format(call="175, 0, 0, 0"), WRITES),
        _attack("kexec", _CALL.format(call="246, 0, 99, 0, 0"), WRITES),
        _attack("swap", _CALL.format(call="167, b'/nowhere', 0"), WRITES),
        _attack("hostname", _CALL.format(call="170, b'x' * 99, 99"), WRITES),
        _attack(
            "clock", '$PYTHON -c "import time; time.clock_settime(time.CLOCK_REALTIME, time.time())"', WRITES
        ),
        _attack(
            "handle",
            "$PYTHON -c \"import ctypes,os,struct; c=ctypes.CDLL(None,use_errno=True); h=ctypes.create_string_buffer(struct.pack('=Ii', 128, 0), 136); m=ctypes.c_int(); c.syscall(303, -100, b'.', h, ctypes.byref(m), 0); exit(c.syscall(304, os.open('.', 0), h, 0) < 0)\"",
            WRITES,
        ),
        _attack("bpf", _CALL.format(call="321, 5, 0, 0"), WRITES),
        _attack("pivot", _CALL.format(call="155, b'/', b'/'"), WRITES),
        _attack(
            "set-namespace",
            "$PYTHON -c \"import ctypes,os; f=os.open('/proc/1/ns/mnt',0); exit(ctypes.CDLL(None).setns(f,0) < 0)\"",
            WRITES,
        ),
        _attack(
            "chroot-out",
            "$PYTHON -c \"import os; os.mkdir('j'); f=os.open('/',0); os.chroot('j'); os.fchdir(f); [os.chdir('..') for _ in range(9)]; os.chroot('.'); exit(not os.access(os.environ['REPO'] + '/.git/autopilot/kept', os.W_OK))\"",
            WRITES,
        ),
    ]
    return found


def _attack(name: str, script: str, seal: str) -> Attack:
    kind, _, rest = name.partition("-")
    target = {
        "setting": rest.replace("-", "/", 1),
        "device": f"/dev/{rest.partition('-')[2]}",
        "proc": f"/proc/{rest.replace('-', '/')}",
    }.get(kind, _CALLED.get(name, name))
    needs = {"setting": f"/proc/sys/{target}", "device": target, "proc": target}.get(kind, "")
    return Attack(
        name=f"machine-{name}",
        family="devices",
        script=script,
        seal=seal,
        proof=worked(),
        target=target,
        needs=needs or _AT.get(name, ""),
    )
