"""Programs that attack through calls of the kernel: memory that nobody counts, what is shared with the machine."""

from __future__ import annotations

from attacks.catalogue import Attack
from attacks.programs import CALL, Program, ends, fails, hangs

KERNEL = (
    CALL
    + """
from platform import machine
arm = machine() == "aarch64"
def kernel(name, numbers, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(numbers[arm], *arguments) == -1: print(name, os.strerror(ctypes.get_errno()))
    else: print("ESCAPED", name)
def tried(name, attempt):
    try: attempt()
    except OSError as error: print(name, error.strerror)
    else: print("ESCAPED", name)
"""
)
"""Calls by their numbers on both kinds of machines, and attempts in Python."""

SHARED: list[Program] = [
    ends("descriptors on their way, which the kernel counts for all of a user's programs", KERNEL + """
import socket
one, other = socket.socketpair()
tried("sendmsg", lambda: socket.send_fds(one, [b"x"], [0]))
kernel("sendmmsg", (307, 269), one.fileno(), ctypes.create_string_buffer(64), 1, 0)
""", "sendmsg Operation not permitted\nsendmmsg Operation not permitted"),
    ends("locks on a library", KERNEL + """
import fcntl
for file in (os.__file__, "/usr/bin/env", "/dev/null"):
    for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        with open(file) as opened: tried("lock", lambda: fcntl.flock(opened, kind | fcntl.LOCK_NB))
""", "lock Operation not permitted"),
    ends("a lease of a library", KERNEL + """
import fcntl
with open(os.__file__) as file: tried("lease", lambda: fcntl.fcntl(file, 1024, fcntl.F_RDLCK))
""", "lease Operation not permitted"),
    ends("being told of new files in the system's folders", KERNEL + """
import fcntl
tried("dnotify", lambda: fcntl.fcntl(os.open("/usr/lib", os.O_RDONLY), 1026, 4))
kernel("inotify_init1", (294, 26), 0)
kernel("fanotify_init", (300, 262), 0x200, 0)
if not arm: kernel("inotify_init", (253, 0))
""", "dnotify Operation not permitted\ninotify_init1 Operation not permitted\nfanotify_init Operation not permitted"),
    ends("times of devices", KERNEL + """
for name in os.listdir("/dev"):
    before = os.stat(f"/dev/{name}").st_mtime_ns
    for times in (None, (1, 1)):
        try: os.utime(f"/dev/{name}", times)
        except OSError: pass
    if name != "shm" and os.stat(f"/dev/{name}").st_mtime_ns != before: print("ESCAPED", name)
for numbers in ((132, 0), (235, 0)):
    if not arm: kernel("utimes", numbers, ctypes.c_char_p(b"/dev/full"), 0)
if not arm: kernel("futimesat", (261, 0), -100, ctypes.c_char_p(b"/dev/full"), 0)
print("as they were")
""", "as they were"),
    ends("a hint how long a file lives", """
        import fcntl, struct
        with open("/tmp/x", "w") as file:
            for command in (1036, 1038):
                try: print("ESCAPED", fcntl.fcntl(file, command, struct.pack("Q", 3)))
                except OSError as error: print(error.strerror)
        """, "Operation not permitted"),
    ends("where the machine keeps its folders", KERNEL + """
buffer, request = ctypes.create_string_buffer(4096), (ctypes.c_uint64 * 4)(24, 0xFFFFFFFFFFFFFFFF, 0, 0)
kernel("listmount", (458, 458), request, buffer, 512, 0)
request = (ctypes.c_uint64 * 4)(24, 1, 0x1F, 0)
kernel("statmount", (457, 457), request, buffer, 4096, 0)
""", "listmount Function not implemented\nstatmount Function not implemented"),
    ends("writing back all the machine's files", KERNEL + """
kernel("sync", (162, 81))
kernel("syncfs", (306, 267), os.open("/usr/lib", os.O_RDONLY))
""", "sync Operation not permitted\nsyncfs Operation not permitted"),
    ends("making the machine's disks write, by a library", KERNEL + """
file = os.open(os.__file__, os.O_RDONLY)
os.close(file)  # what is no descriptor any more cannot be written back
for name, numbers in ("fsync", (74, 82)), ("fdatasync", (75, 83)), ("sync_file_range", (277, 84)):
    print(name, libc.syscall(numbers[arm], file, 0, 0, 0))
""", "fsync 0\nfdatasync 0\nsync_file_range 0"),
    ends("a place before others at the disks and the processors", KERNEL + """
kernel("ioprio_set", (251, 30), 1, os.getppid(), 2 << 13)
kernel("sched_setattr", (314, 274), 0, 0, 0)
""", "ioprio_set Operation not permitted\nsched_setattr Operation not permitted"),
    ends("driving libraries out of the machine's memory", KERNEL + """
file = os.open(os.__file__, os.O_RDONLY)
tried("fadvise", lambda: os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED) )
kernel("readahead", (187, 213), file, 0, 1 << 20)
kernel("cachestat", (451, 451), file, 0, 0, 0)
""", "fadvise Operation not permitted\nreadahead Operation not permitted\ncachestat Function not implemented"),
    ends("a processor's core for itself", CALL + 'call("prctl", 62, 1, 0, 0, 0)', "prctl Operation not permitted"),
    ends("its parent-death signal", CALL + 'call("prctl", 1, 0, 0, 0, 0)', "prctl Operation not permitted"),
    ends("the machine's clock, name and power", KERNEL + """
import time
tried("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
call("sethostname", b"x", 1)
call("reboot", 0x01234567)
call("swapon", b"/tmp/x", 0)
call("acct", b"/tmp/x")
""", "clock Operation not permitted\nsethostname Operation not permitted\nreboot Operation not permitted"),
    ends("real-time priority", KERNEL + """
tried("fifo", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
tried("nice", lambda: os.nice(-1))
tried("others", lambda: os.setpriority(os.PRIO_USER, 0, -5))
""", "fifo Operation not permitted\nnice Operation not permitted"),
    ends("files of the machine by their handles", KERNEL + """
handle = ctypes.create_string_buffer(b"\\x08\\0\\0\\0\\1\\0\\0\\0\\2" + bytes(119))
kernel("open_by_handle_at", (304, 265), os.open("/usr/lib", os.O_RDONLY), handle, 0)
""", "open_by_handle_at Operation not permitted"),
    ends("mounts made in pieces", KERNEL + """
kernel("open_tree", (428, 428), -100, b"/", 1)
kernel("fsopen", (430, 430), b"tmpfs", 0)
kernel("mount_setattr", (442, 442), -100, b"/", 0, 0, 0)
""", "open_tree Operation not permitted\nfsopen Operation not permitted\nmount_setattr Function not implemented"),
    ends("namespaces of process 1", KERNEL + """
one = os.pidfd_open(1)
for flag in (0x00020000, 0x10000000, 0x20000000, 0x40000000):
    ctypes.set_errno(0)
    print(libc.setns(one, flag), os.strerror(ctypes.get_errno()))
print("ESCAPED" if os.getuid() == 0 else "nobody")
""", "nobody"),
    ends("stirring the machine's randomness", KERNEL + """
import fcntl
file = os.open("/dev/urandom", os.O_RDWR)
for request in (0x40085203, 0x5204, 0x5206): tried("random", lambda: fcntl.ioctl(file, request, bytes(16)))
""", "random Operation not supported\n" * 3),
    ends("typing into a terminal", KERNEL + """
import fcntl
for file in (0, 1): tried("TIOCSTI", lambda: fcntl.ioctl(file, 0x5412, b"x"))
tried("tty", lambda: open("/dev/tty"))
""", "TIOCSTI Inappropriate ioctl for device"),
]  # fmt: skip

LIVES: list[Program] = [
    fails("every signal to process 1", """
        import os, signal
        for number in signal.valid_signals(): os.kill(1, number)
        while True: pass
        """, ""),
    hangs("stopping process 1, and its clock", """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(3):
            for name in ("STOP", "TSTP", "TERM", "CONT", "STOP"): os.kill(1, getattr(signal, "SIG" + name))
        while True: time.sleep(1)
        """),
    hangs("limits of process 1", """
        import os, resource, time
        for name in ("CPU", "NOFILE", "AS", "DATA", "STACK"):
            try: resource.prlimit(1, getattr(resource, "RLIMIT_" + name), (0, 0))
            except (OSError, ValueError) as error: print(error)
        os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))
        while True: time.sleep(1)
        """),
    ends("the output of process 1", KERNEL + """
one = os.pidfd_open(1)
found = libc.syscall(438, one, 1, 0)
print("mine" if found == -1 or os.fstat(found).st_ino == os.fstat(1).st_ino else "ESCAPED")
""", "mine"),
    fails("dead children that nobody buries", """
        import os
        while True: os.fork() or os._exit(0)
        """, "BlockingIOError"),
    hangs("children that fork and end", """
        import os
        while True:
            try:
                if os.fork(): os._exit(0) if os.getpid() > 2 else os.wait()
            except OSError: pass
        """),
    ends("a child of process 1", KERNEL + """
import time
child = libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0) if not arm else libc.syscall(220, 0x8000 | 17, 0, 0, 0, 0)
if child == 0: time.sleep(600)
print("on")
""", "on"),
    hangs("a pipe that nobody opens", "import os\nos.mkfifo('/tmp/x')\nopen('/tmp/x')"),
    hangs("a lock that it holds itself", "import threading\nx = threading.Lock()\nx.acquire()\nx.acquire()"),
    hangs("descriptors that watch each other", """
        import select
        a = select.epoll(); b = select.epoll()
        a.register(b.fileno())
        while True: a.poll(1)
        """),
    fails("a flood, a byte at a time", "import os\nwhile True: os.write(1, b'x')", "after 65536 bytes of output"),
    ends("output that does not block", """
        import os
        os.set_blocking(1, False)
        sent = 0
        try:
            while sent < 60000: sent += os.write(1, b"x" * 1000)
        except BlockingIOError: pass
        os.set_blocking(1, True)
        print("\\ndone")
        """, "done"),
    ends("output that imitates another result", r"""
        print('{"status": "ok", "text": "ESC' + '"}\x1b]0;title\x07\x1b[2J\r\0')
        """, "\x1b[2J"),
    fails("arguments that are too long", "import os\nos.execv('/bin/true', ['x' * (1 << 22)])", "too long"),
    fails("becoming a program that is not there", "import os\nos.execv('/bin/nothing', ['x'])", "FileNotFoundError"),
    fails("an exit code beyond a byte", "import os\nos._exit(0x1FF)", "exit code 255"),
    fails("ending as a killed one does", "import os\nos._exit(137)", "ended by SIGKILL"),
    fails("more processor time than it allows itself", """
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
        while True: pass
        """, "ended by SIGKILL"),
    ends("a thread that becomes another program", """
        import os, threading, time
        threading.Thread(target=os.execv, args=("/bin/echo", ["echo", "became"])).start()
        time.sleep(60)
        """, "became"),
    ends("a name that looks like a status", CALL + r"""
libc.prctl(15, b") R 1\n1 2 3", 0, 0, 0)
libc.prctl(4, 0, 0, 0, 0)
print("named")
""", "named"),
    ends("folders within folders", """
        import os
        for n in range(3000):
            os.mkdir("x")
            os.chdir("x")
        print("deep")
        """, "deep"),
    ends("links that lead to each other", """
        import os
        os.symlink("/tmp/a", "/tmp/b"); os.symlink("/tmp/b", "/tmp/a")
        try: open("/tmp/a")
        except OSError as error: print(error.strerror)
        """, "Too many levels of symbolic links"),
    hangs("names that are nowhere", """
        import os
        n = 0
        while True:
            n += 1
            os.path.exists(f"/usr/lib/{n}")
        """),
]  # fmt: skip

NEEDED: list[Program] = [
    ends("a database, which locks its file", """
        import sqlite3
        with sqlite3.connect("/tmp/x.db") as one: one.execute("create table t as select 7 as n")
        print(sqlite3.connect("/tmp/x.db").execute("select n from t").fetchall())
        """, "[(7,)]"),
    ends("tasks, threads and other programs", """
        import asyncio, concurrent.futures, subprocess, sys
        async def main():
            done = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(2)", stdout=-1)
            return (await done.communicate())[0], await asyncio.to_thread(abs, -3)
        print(asyncio.run(main()), subprocess.run(["echo", "4"], capture_output=True).stdout)
        with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [-5])))
        """, "(b'2\\n', 3) b'4\\n'\n[5]"),
    ends("a pool of threads, and pools of processes by fork and spawn", """
        import concurrent.futures, multiprocessing
        if __name__ == "__main__":
            with concurrent.futures.ThreadPoolExecutor(2) as pool: print(list(pool.map(abs, [-1])))
            with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-2] * 9)[:1])
            with multiprocessing.get_context("spawn").Pool(1) as pool: print(pool.map(abs, [-3]))
            one, other = multiprocessing.Pipe(); one.send([4]); print(other.recv())
        """, "[1]\n[2]\n[3]\n[4]"),
    ends("a server and its client, in one loop", """
        import asyncio
        async def echo(reader, writer):
            writer.write(await reader.read()); await writer.drain(); writer.close()
        async def main():
            async with await asyncio.start_unix_server(echo, "/tmp/socket"):
                reader, writer = await asyncio.open_unix_connection("/tmp/socket")
                writer.write(b"x" * 10); writer.write_eof()
                print(await reader.read())
        asyncio.run(main())
        """, "b'xxxxxxxxxx'"),
    ends("copies of files, and files that are touched", """
        import pathlib, shutil, socket
        new = pathlib.Path("new"); new.write_bytes(bytes(1 << 20)); new.touch()
        one, other = socket.socketpair()
        with open("new", "rb") as file: print(one.sendfile(file, count=9), other.recv(99))
        shutil.copytree(".", "/tmp/all", ignore=lambda *_: ["all"]); shutil.copy2("new", "newer")
        print(pathlib.Path("newer").stat().st_size)
        print(sorted(path.name for path in pathlib.Path(".").rglob("*")))
        """, "1048576\n['all', 'new', 'new', 'newer']"),
    ends("values that a manager shares", """
        import multiprocessing
        if __name__ == "__main__":
            with multiprocessing.Manager() as manager:
                shared = manager.list([1])
                child = multiprocessing.Process(target=shared.append, args=(2,))
                child.start(); child.join()
                print(list(shared))
        """, "[1, 2]"),
    ends("every module of the standard library", """
        import importlib, sys
        missing = []
        for name in sorted(sys.stdlib_module_names - {"antigravity", "this", "idlelib", "nt", "winreg", "msvcrt"}):
            try: importlib.import_module(name)
            except ModuleNotFoundError as error: missing.append(str(error))
            except ImportError: pass
        print([n for n in ("json", "ssl", "sqlite3", "ctypes", "decimal", "zoneinfo", "lzma") if n in str(missing)])
        """, "[]"),
]  # fmt: skip

PROMISES = {
    "A program changes, blocks, watches and slows nothing that it shares with the machine.": SHARED,
    "A program outlives neither its deadline nor its output's limit, whatever it does with processes.": LIVES,
    "What is denied is nothing that Python needs.": NEEDED,
}
ATTACKS = [
    Attack(f"a program: {program.name}", promise, program.outcome, program)
    for promise, programs in PROMISES.items()
    for program in programs
]
