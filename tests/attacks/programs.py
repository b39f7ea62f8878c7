"""Programs that try to break out of a sandbox, to bring its machine down, or to outlive it.

@HOME@, @PROJECT@, @SECRET@, @MARK@, @PORT@, @ABSTRACT@ and @PID@ stand for what is outside: folders, a file with a
secret, the name of files that must not come to be, a port and an abstract socket on which someone listens, the process
that runs the test. A program that gets what it came for prints ESCAPED.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from attacks.catalogue import Attack

from orgthink.record.episode import Status

SOON, LATE = 2.0, 30.0
"""Seconds given to programs that never end, and to those that end by themselves, also on a busy machine."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is run, and what must become of it."""

    name: str
    """In a few words."""
    code: str
    """What is run."""
    status: Status
    """How it must end."""
    says: str = ""
    """What must be in its output or error."""

    @property
    def seconds(self) -> float:
        """What it gets."""
        return SOON if self.status is Status.TIMEOUT else LATE

    @property
    def outcome(self) -> str:
        """What the user sees."""
        if self.status is Status.OK:
            return "its output, an ordinary result"
        return f"a result with status `{self.status}`" + (f": `{self.says}`" if self.says else "")


def ends(name: str, code: str, says: str = "") -> Program:
    """It ends by itself, and well."""
    return Program(name, dedent(code), Status.OK, says)


def fails(name: str, code: str, says: str) -> Program:
    """It ends badly, or is stopped for what it uses."""
    return Program(name, dedent(code), Status.ERROR, says)


def hangs(name: str, code: str, says: str = "stopped after 2 s") -> Program:
    """It never ends by itself."""
    return Program(name, dedent(code), Status.TIMEOUT, says)


CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    if getattr(libc, function)(*arguments) == -1:
        print(function, os.strerror(ctypes.get_errno()))
    else:
        print("ESCAPED", function)
"""
"""Calls of the C library, by name."""

RESOURCES = [
    hangs("fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    fails("forks until it cannot", "import os, time\nwhile True:\n    os.fork() or time.sleep(60)", "BlockingIOError"),
    fails("thread bomb", """
        import threading, time
        while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        """, "can't start new thread"),
    hangs("threads that stay", """
        import threading, time
        for _ in range(4): threading.Thread(target=time.sleep, args=(60,)).start()
        """),
    fails("one large block", "x = bytearray(1 << 40)", "MemoryError"),
    fails("a growing list", "x = []\nwhile True: x.append(bytearray(1 << 20))", "MemoryError"),
    fails("a doubled string", "x = 'x'\nwhile True: x *= 2", "MemoryError"),
    fails("a large number", "x = 1 << (1 << 36)", "MemoryError"),
    fails("memory in many processes", """
        import os, time
        for _ in range(8):
            if os.fork() == 0: break
        x = bytearray(b"1") * (100 << 20)
        time.sleep(60)
        """, "more than 256 MiB"),
    fails("memory from a thread's children", """
        import os, threading, time
        def grow():
            for _ in range(4):
                if os.fork() == 0:
                    x = bytearray(b"1") * (100 << 20)
                    time.sleep(60)
        threading.Thread(target=grow).start()
        time.sleep(60)
        """, "more than 256 MiB"),
    ends("memory outside of processes", CALL + """
call("memfd_create", b"x", 0)
call("shmget", 0, 1 << 40, 0o1600)
call("msgget", 0, 0o1600)
""", "memfd_create Operation not permitted\nshmget Operation not permitted\nmsgget Operation not permitted"),
    ends("shared memory without a file", """
        import mmap, os
        for file in (lambda: -1, lambda: os.open("/dev/zero", os.O_RDWR)):
            try: mmap.mmap(file(), 180 << 20)
            except OSError as error: print(type(error).__name__)
            else: print("ESCAPED")
        """, "PermissionError\nFileNotFoundError"),
    fails("memory that forks share and let go of", """
        import mmap, os, time
        for _ in range(5):
            if os.fork() == 0: break
        x = mmap.mmap(-1, 180 << 20)
        for _ in range(180): x.write(bytes(1 << 20))
        x.madvise(mmap.MADV_DONTNEED)
        time.sleep(60)
        """, "PermissionError"),
    fails("stdout flood", "while True: print('x' * 1000)", "after 65536 bytes of output"),
    fails("stderr flood", "import sys\nwhile True: sys.stderr.write('x' * 1000)", "after 65536 bytes of output"),
    fails("a huge line", "print('x' * 100_000_000)", "after 65536 bytes of output"),
    fails("a flood from children", """
        import os, time
        for _ in range(8):
            if os.fork() == 0:
                while True: os.write(1, b"x" * 4096)
        time.sleep(60)
        """, "after 65536 bytes of output"),
    hangs("endless loop", "while True: pass"),
    hangs("sleep", "import time\ntime.sleep(60)"),
    hangs("a search that explodes", "import re\nre.match('(a+)+$', 'a' * 64 + 'b')"),
    fails("a huge file", "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))", "File too large"),
    fails("a file full of nothing", "open('/tmp/x', 'wb').truncate(1 << 40)", "File too large"),
    fails("many large files", """
        for n in range(1000):
            with open(f"/tmp/{n}", "wb") as f: f.write(bytes(1 << 20))
        """, "No space left on device"),
    hangs("many small files", "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'w').close()\n    n += 1"),
    fails("many open files", "x = []\nwhile True: x.append(open('/dev/null'))", "Too many open files"),
    fails("device memory", "open('/dev/shm/../dev/x', 'w')", "Error"),
    fails("deep recursion", "def f(): return f()\nf()", "RecursionError"),
    fails("deeper recursion", """
        import sys
        sys.setrecursionlimit(1 << 30)
        def f(x): return sorted([x], key=f)
        f(1)
        """, "SIGSEGV"),
    fails("a deep literal", "x = eval('[' * 1000)", "SyntaxError"),
    ends("limits back up", """
        import resource
        for name in ("AS", "NPROC", "FSIZE", "NOFILE", "CORE", "MEMLOCK", "MSGQUEUE", "SIGPENDING", "RTPRIO"):
            which = getattr(resource, "RLIMIT_" + name)
            soft, hard = resource.getrlimit(which)
            assert soft == hard != resource.RLIM_INFINITY, name
            try: resource.setrlimit(which, (hard + 1, hard + 1))
            except ValueError as error: print(error)
            else: print("ESCAPED", name)
        """, "not allowed to raise maximum limit"),
]  # fmt: skip

READING = [
    *(
        ends(f"reading {place}", f"""
            import os
            try: print("ESCAPED", os.listdir(os.path.expanduser({place!r})))
            except OSError as error: print(type(error).__name__)
            """, "Error")
        for place in ("~root", "/root", "/home", "@HOME@", "@PROJECT@", "/etc", "/var", "/proc", "/sys", "/run")
    ),
    fails("a secret file", "print(open('@SECRET@').read())", "FileNotFoundError"),
    fails("shadow", "print(open('/etc/shadow').read())", "FileNotFoundError"),
    ends("the environment", "import os\nprint(sorted(os.environ))",
         "['HOME', 'LC_CTYPE', 'LD_LIBRARY_PATH', 'OMP_NUM_THREADS', 'PATH', 'PWD', 'PYTHONPATH']"),
    ends("the environment of others", """
        import glob, os
        rooms = glob.glob(os.path.join("/proc/*", "root", "*"))
        print([open(file, "rb").read() for file in glob.glob("/proc/*/environ")], rooms)
        """, "[] []"),
    fails("its own memory by /proc", "open('/proc/self/mem', 'r+b')", "FileNotFoundError"),
    ends("a symlink out", """
        import os
        first = os.path.join("/proc/1", "root", "etc/passwd")
        for target in ("@SECRET@", first, "/../../../../etc/passwd", "../../../../../..@SECRET@"):
            os.symlink(target, "/tmp/link")
            try: print("ESCAPED", open("/tmp/link").read())
            except OSError as error: print(type(error).__name__)
            os.unlink("/tmp/link")
        """, "FileNotFoundError"),
    ends("descriptors left open", """
        import os
        for fd in range(3, 64):
            try: print("ESCAPED", fd, os.fstat(fd))
            except OSError: pass
        """),
    ends("stdin", "import sys\nprint(repr(sys.stdin.read()))", "''"),
    fails("input", "input('? ')", "EOFError"),
    fails("its own framework", "import orgthink", "ModuleNotFoundError"),
    ends("who it is", "import socket, os\nprint(socket.gethostname(), os.getuid(), os.getpid())", "sandbox 65534 2"),
    ends("the kernel's log", CALL + 'call("klogctl", 3, ctypes.create_string_buffer(99), 99)', "not permitted"),
]  # fmt: skip

WRITING = [
    *(
        ends(f"writing to {folder}", f"""
            import os
            try: open({folder!r} + "/@MARK@", "w").write("ESCAPED")
            except OSError as error: print(type(error).__name__)
            else: print("ESCAPED")
            """, "Error")
        for folder in ("/", "/usr/bin", "/usr/lib", "/python", "/python/lib", "/dev", "/home", "@HOME@", "@PROJECT@")
    ),
    ends("writing to /tmp, which is its own", "print(open('/tmp/@MARK@', 'w').write('mine'))", "4"),
    ends("writing to /dev/shm, which is its own", "print(open('/dev/shm/@MARK@', 'w').write('mine'))", "4"),
    ends("overwriting Python", """
        import os
        for file in (os.__file__, "/python/bin/python3", "/code.py", "/usr/lib/os-release"):
            for attempt in (lambda: open(file, "a"), lambda: os.chmod(file, 0o777), lambda: os.unlink(file),
                            lambda: os.rename(file, file + ".@MARK@"), lambda: os.link(file, "/tmp/link")):
                try: attempt()
                except OSError as error: print(type(error).__name__)
                else: print("ESCAPED", file)
        """, "Error"),
    ends("devices", """
        import os, stat
        for kind, major, minor in ((stat.S_IFBLK, 254, 0), (stat.S_IFBLK, 8, 0), (stat.S_IFCHR, 1, 1)):
            try: os.mknod("/tmp/device", kind | 0o666, os.makedev(major, minor))
            except OSError as error: print(error)
            else: print("ESCAPED")
        """, "Operation not permitted"),
    ends("sysctl and sysrq", """
        for file in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname"):
            try: open(file, "w")
            except OSError as error: print(type(error).__name__)
            else: print("ESCAPED")
        """, "FileNotFoundError"),
]  # fmt: skip

NETWORK = [
    *(
        ends(f"connecting to {host}", f"""
            import socket
            try: socket.create_connection(({host!r}, @PORT@), 5)
            except OSError as error: print(type(error).__name__, error)
            else: print("ESCAPED")
            """, "Error")
        for host in ("127.0.0.1", "::1", "10.0.0.1", "1.1.1.1", "169.254.169.254")
    ),
    ends("datagrams", """
        import socket
        try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"ESCAPED", ("127.0.0.1", @PORT@))
        except OSError as error: print(error)
        """),
    fails("names", "import socket\nprint(socket.getaddrinfo('example.com', 80))", "gaierror"),
    ends("unix sockets", r"""
        import socket
        for address in ("\0ABSTRACT", "/run/docker.sock", "/var/run/dbus/system_bus_socket"):
            try: socket.socket(socket.AF_UNIX).connect(address)
            except OSError as error: print(type(error).__name__)
            else: print("ESCAPED")
        """, "ConnectionRefusedError"),
    ends("raw, packet, netlink, crypto and vsock sockets", """
        import socket
        for family, kind in ((2, 3), (10, 3), (17, 3), (16, 3), (38, 5), (40, 1)):
            try: socket.socket(family, kind)
            except OSError as error: print(error)
            else: print("ESCAPED", family)
        """, "Operation not permitted"),
]  # fmt: skip

KILLING = [
    ends("killing others", """
        import os, signal
        for pid in (@PID@, os.getppid(), 1, -1, -@PID@):
            try: os.kill(pid, signal.SIGKILL)
            except OSError as error: print(pid, type(error).__name__)
        print("alone")
        """, "alone"),
    fails("a child that kills all", """
        import os, signal
        child = os.fork()
        if not child: os.kill(1, signal.SIGKILL); os.kill(-1, signal.SIGKILL); os._exit(3)
        print(os.waitpid(child, 0))
        """, "ended by SIGKILL"),
    ends("debugging", CALL + """
call("ptrace", 16, 1, 0, 0)
call("process_vm_readv", 1, 0, 0, 0, 0, 0)
""", "not permitted"),
    hangs("deaf to every signal", """
        import os, signal
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True: pass
        """),
    hangs("a stopped child", "import os, signal, time\nos.fork() or os.kill(os.getpid(), signal.SIGSTOP)\nos.wait()"),
    ends("a daemon", """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for n in range(100): os.write(1, b"late "); time.sleep(0.1)
            os._exit(0)
        os.wait()
        print("gone")
        """, "gone"),
    ends("a daemon that lets go of the pipe", """
        import os, time
        if os.fork() == 0:
            os.setsid(); os.closerange(0, 64)
            if os.fork() == 0: time.sleep(600)
            os._exit(0)
        print("gone")
        """, "gone"),
    ends("a thread that outlives it", """
        import os, threading, time
        threading.Thread(target=lambda: [time.sleep(0.1) or print("late") for _ in range(100)]).start()
        os._exit(0)
        """),
    hangs("a child that outlives it, and it waits", "import os, time\nif os.fork() == 0: time.sleep(600)\nos.wait()"),
    hangs("silent, with its output closed", "import os, time\nos.close(1); os.close(2)\ntime.sleep(600)"),
    ends("output closed, and on it goes", """
        import os
        print("said", flush=True)
        os.close(1); os.close(2)
        sum(range(10**6))
        os._exit(0)
        """, "said"),
    ends("becoming a shell", """
        import os
        os.execv("/bin/sh", ["sh", "-c", "id -u; ls /home /root; cat @SECRET@; echo parent $PPID"])
        """, "parent 1"),
]  # fmt: skip

RIGHTS = [
    ends("becoming root", """
        import os
        for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
            try: attempt()
            except OSError as error: print(error)
            else: print("ESCAPED")
        """, "[Errno"),
    ends("namespaces of its own", CALL + """
for flag in (0x10000000, 0x10020000, 0x00020000, 0x20000000, 0x40000000): call("unshare", flag)
call("clone", 0, 0, 0x10000000 | 17, 0)
""", "No space left on device"),
    ends("chroot and mount", CALL + """
call("chroot", b"/tmp")
call("mount", b"none", b"/tmp", b"tmpfs", 0, None)
call("mount", b"/", b"/tmp", None, 4096, None)
call("umount2", b"/usr/lib", 2)
call("pivot_root", b"/tmp", b"/tmp") if hasattr(libc, "pivot_root") else None
""", "Operation not permitted"),
    ends("keys, and other doors of the kernel", CALL + """
from platform import machine
doors = {"x86_64": (248, 249, 250, 298, 321, 323), "aarch64": (217, 218, 219, 241, 280, 282)}
for number in (*doors[machine()], 425, 447): call("syscall", number, 0, 0, 0, 0, 0)
""", "not permitted"),
    ends("a program with the set-user-id bit", """
        import os, subprocess
        for program in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd"):
            if os.path.exists(program): subprocess.run([program, "root"], input=b"")
        print(os.geteuid())
        """, "65534"),
    fails("calls in the older numbering", """
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
        page.write(bytes.fromhex("b814000000cd80c3"))  # getpid of 32 bits
        print("ESCAPED", ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
        """, "SIGSYS"),
]  # fmt: skip

ENDINGS = [
    fails("an exit code", "import sys\nsys.exit(7)", "exit code 7"),
    fails("a last word", "import sys\nsys.exit('no more')", "exit code 1 (no more)"),
    ends("in the middle", "import os\nprint('half', flush=True)\nos._exit(0)\nprint('whole')", "half"),
    fails("a crash", "import ctypes\nctypes.string_at(0)", "ended by SIGSEGV"),
    fails("an exception", "print('a')\n1 / 0", 'File "/code.py", line 2'),
    fails("no Python", "def f(:\n  pass", "SyntaxError"),
    fails("half a character in the source", "print('\ud800')", "SyntaxError"),
    fails("an unknown encoding", "# -*- coding: klingon -*-\nprint(1)", "SyntaxError"),
    fails("a last line in another alphabet", "raise ValueError('größer als π 🙂')", "(ValueError: größer als π 🙂)"),
    ends("bytes that are no text", "import os\nos.write(1, bytes([97, 255, 254, 0, 122]))", "a\ufffd\ufffd\0z"),
    ends("many collections", "import gc\nfor _ in range(50): x = []; x.append(x); gc.collect()\nprint('done')", "done"),
    ends("a worker pool", """
        import multiprocessing
        if __name__ == "__main__":
            with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, 2]))
        """, "[1, 2]"),
    ends("a number that processes share", """
        import multiprocessing, os
        shared = multiprocessing.RawValue("i")
        child = os.fork()
        if not child: shared.value = 7; os._exit(0)
        os.waitpid(child, 0)
        print(shared.value)
        """, "7"),
]  # fmt: skip

PROMISES = {
    "A program gets no more time, memory, output, files or processes than its limits.": RESOURCES,
    "A program sees nothing of the machine but the system's libraries, Python's and named packages.": READING,
    "A program writes to files of its own only.": WRITING,
    "A program reaches no network and no other process's socket.": NETWORK,
    "A program ends with its sandbox, and ends nobody else.": KILLING,
    "A program gains no rights.": RIGHTS,
    "However a program ends, the result says how, in one line.": ENDINGS,
}
ATTACKS = [
    Attack(f"a program: {program.name}", promise, program.outcome, program)
    for promise, programs in PROMISES.items()
    for program in programs
]
