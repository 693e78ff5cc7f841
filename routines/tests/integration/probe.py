"""Attempts of a routine to leave its isolation, and functions that isolation must leave alone."""

import asyncio, concurrent.futures, ctypes, hashlib, mmap, os, resource, shutil, signal, socket, sqlite3, ssl
import subprocess, sys, tempfile, zlib

import routines

NODE = os.getppid()
LIBC = ctypes.CDLL(None, use_errno=True)


def syscall(number, *arguments):
    if LIBC.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20):
        pass


def connect_by_message(port):
    with socket.socket() as client:
        client.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))


def send_datagram(port):
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("127.0.0.1", port))


def read_process():
    buffer = ctypes.create_string_buffer(1)
    part = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 1)
    syscall({"x86_64": 310, "aarch64": 270}[os.uname().machine], NODE, part, 1, part, 1, 0)


def mount():
    if LIBC.mount(b"none", b".", b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "")


def namespace():
    # The flags are CLONE_NEWUSER and SIGCHLD.
    syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x1000_0000 | signal.SIGCHLD, 0, 0, 0, 0)


def leave_group():
    # A process that leads its group stays in it, so a child tries.
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if failed:
        raise OSError(failed, os.strerror(failed))


def other_runtime(_):
    if routines.call("other@1.0", os.path.join(os.getcwd(), "page")) != "EACCES":
        raise AssertionError("it reads the files of another runtime")
    raise PermissionError(13, "as it should")


ATTEMPTS = {
    "read_file": lambda path: open(path).read(),
    "read_environment": lambda _: open(f"/proc/{NODE}/environ").read(),
    "read_memory": lambda _: open(f"/proc/{NODE}/mem", "rb").read(1),
    "read_maps": lambda _: open(f"/proc/{NODE}/maps").read(),
    "read_process": lambda _: read_process(),
    "list_folder": os.listdir,
    "list_runtimes": lambda _: os.listdir(".."),
    "other_runtime": other_runtime,
    "write_file": lambda path: open(path, "w"),
    "truncate_file": lambda path: os.truncate(path, 0),
    "remove_file": os.remove,
    "link_file": lambda path: os.link(path, "stolen"),
    "move_file": lambda path: os.rename(path, "stolen"),
    "write_package": lambda _: open(__file__, "a"),
    "change_owner": lambda path: os.chown(path, os.getuid(), os.getgid()),
    "connect": connect,
    "connect_by_message": connect_by_message,
    "send_datagram": send_datagram,
    "unix_socket": lambda _: socket.socket(socket.AF_UNIX),
    "datagram_pair": lambda _: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
    "signal_node": lambda _: os.kill(NODE, 0),
    "limit_node": lambda _: resource.prlimit(NODE, resource.RLIMIT_CPU),
    "leave_session": lambda _: subprocess.run(["true"], start_new_session=True, check=True),
    "leave_group": lambda _: leave_group(),
    "trace_node": lambda _: syscall({"x86_64": 101, "aarch64": 117}[os.uname().machine], 16, NODE, 0, 0),
    "mount": lambda _: mount(),
    "device": lambda _: os.mknod("device", 0o060600, os.makedev(8, 0)),
    "namespace": lambda _: namespace(),
    "queue_of_calls": lambda _: syscall(425, 1, ctypes.create_string_buffer(120)),
}


def attempt(name, argument=None):
    """Returns the name of the error of an attempt, or None if it succeeds."""
    try:
        ATTEMPTS[name](argument)
    except OSError as error:
        return __import__("errno").errorcode[error.errno]


def read(path):
    return attempt("read_file", path)


def works(path):
    """Uses a resource, files, threads, processes and libraries in C."""
    content = open(path).read()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "file")
        with open(file, "w") as to:
            to.write(content)
        shutil.copy(file, "copy")
        os.rename(file, "moved")
        sqlite3.connect(os.path.join(folder, "base")).execute("create table numbers (n)")
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(abs, range(-8, 0))) == list(range(8, 0, -1))
    python = subprocess.run([sys.executable, "-c", "print(open('copy').read())"], capture_output=True, check=True)
    shell = subprocess.run("cat moved | sort", shell=True, capture_output=True, check=True)
    assert python.stdout.strip() == shell.stdout.strip() == content.encode(), (python, shell)
    assert asyncio.run(asyncio.sleep(0, 5)) == 5
    ssl.create_default_context()
    zlib.compress(hashlib.sha256(mmap.mmap(-1, 4096)).digest())
    return content


def steps(last):
    number = routines.restored(0)
    while number < last:
        number += 1
        routines.checkpoint(number)
    return number
