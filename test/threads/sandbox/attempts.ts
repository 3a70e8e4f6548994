// Escape attempts: operations that sandboxed code must not be able to do. Each attempt is a script that prints ESCAPED if
// it succeeds. As a control, the same script also runs outside the sandbox, where it must succeed.

export interface Scene {
  /** Path of a file on the host that contains a secret. */
  readonly secretFile: string;
  /** Work folder of another session, with a file `theirs.txt`. */
  readonly otherFolder: string;
  /** Path of a folder on the host that an unconfined command may write to. */
  readonly hostFolder: string;
  /** Process id of the server. */
  readonly serverPid: number;
  /** Value of a variable that the server has added to its environment. */
  readonly secret: string;
  /** First variable of the environment that the server was started with, as NAME=VALUE. */
  readonly startVariable: string;
  /** Port of a listener on 127.0.0.1 of the host. `abstractName`: name of an abstract Unix socket of the host. */
  readonly port: number;
  readonly abstractName: string;
  /** Port of a listener on the address 127.66.254.169, which imitates a cloud metadata service. */
  readonly metadataPort: number;
  /** Targets of the file descriptors that every child of the test process inherits from the program that started the tests. */
  readonly inherited: readonly string[];
  /** Path of a Unix socket of the host. */
  readonly socketPath: string;
  /** Path of a host program that is owned by root and has the set-user-id bit. */
  readonly setuidProgram: string;
}

export interface Attempt {
  readonly name: string;
  readonly python: (scene: Scene) => string;
  /** Whether to skip the control run outside the sandbox, because it would harm the machine or needs a kernel feature. */
  readonly hasNoControl?: true;
}

/** Returns a script that prints ESCAPED if the statements run without an exception. */
const tried = (statements: string): string => `
import os, sys, ctypes, socket, signal, subprocess, time, stat
try:
${statements
  .trim()
  .split("\n")
  .map((line) => `    ${line}`)
  .join("\n")}
    print("ESCAPED")
except BaseException as error:
    print("refused:", type(error).__name__, error)
`;

const libc = "libc = ctypes.CDLL(None, use_errno=True)\n";
const check = (call: string): string => `${libc}result = ${call}\nassert result >= 0, os.strerror(ctypes.get_errno())`;
/** Returns Python code for a system call, given its number on x86-64 and on arm64. */
const syscall = (x64: number, arm64: number, args: string): string =>
  check(`libc.syscall({"x86_64": ${x64}, "aarch64": ${arm64}}[os.uname().machine], ${args})`);

export const attempts: readonly Attempt[] = [
  // Files of the host.
  {
    name: "read a secret file of the host",
    python: ({ secretFile }) => tried(`open(${JSON.stringify(secretFile)}).read()`),
  },
  {
    name: "list the folder of a secret file",
    python: ({ secretFile }) => tried(`os.listdir(os.path.dirname(${JSON.stringify(secretFile)}))`),
  },
  { name: "read the shadow file", python: () => tried('assert "root" in open("/etc/shadow").read()') },
  { name: "read the users of the host", python: () => tried('assert "root" in open("/etc/passwd").read()') },
  { name: "list the home of root", python: () => tried('assert len(os.listdir("/root")) > 1') },
  {
    name: "read another session's file",
    python: ({ otherFolder }) => tried(`open(os.path.join(${JSON.stringify(otherFolder)}, "theirs.txt")).read()`),
  },
  {
    name: "read a file through a symbolic link",
    python: ({ secretFile }) =>
      tried(
        `os.path.lexists("l1") and os.remove("l1")\nos.symlink(${JSON.stringify(secretFile)}, "l1")\nopen("l1").read()`,
      ),
  },
  {
    name: "read a file through /proc/self/root",
    python: ({ secretFile }) => tried(`open("/proc/self/root" + ${JSON.stringify(secretFile)}).read()`),
  },
  {
    name: "read a file through /proc/1/root",
    hasNoControl: true,
    python: ({ secretFile }) => tried(`open("/proc/1/root" + ${JSON.stringify(secretFile)}).read()`),
  },
  {
    name: "make a hard link to a file of the host",
    python: ({ secretFile }) =>
      tried(`os.path.lexists("l2") and os.remove("l2")\nos.link(${JSON.stringify(secretFile)}, "l2")`),
  },
  {
    name: "write beside the work folder",
    python: ({ hostFolder }) => tried(`open(os.path.join(${JSON.stringify(hostFolder)}, "w1"), "w").write("x")`),
  },
  {
    name: "write to /usr",
    python: () => tried('open("/usr/troupe-test", "w").write("x")\nos.remove("/usr/troupe-test")'),
  },
  {
    name: "write to /etc",
    python: () => tried('open("/etc/troupe-test", "w").write("x")\nos.remove("/etc/troupe-test")'),
  },
  {
    name: "write to the root folder",
    python: () => tried('open("/troupe-test", "w").write("x")\nos.remove("/troupe-test")'),
  },
  {
    name: "write to /dev",
    python: () => tried('open("/dev/troupe-test", "w").write("x")\nos.remove("/dev/troupe-test")'),
  },
  {
    name: "write to /var/tmp",
    python: () => tried('open("/var/tmp/troupe-test", "w").write("x")\nos.remove("/var/tmp/troupe-test")'),
  },
  {
    name: "change the mode of a program",
    python: () => tried('os.chmod("/usr/bin/env", os.stat("/usr/bin/env").st_mode)'),
  },
  { name: "change the owner of a program", python: () => tried('os.chown("/usr/bin/env", 0, 0)') },
  {
    name: "write kernel settings",
    python: () => tried('open("/proc/sys/kernel/domainname", "r+").write(open("/proc/sys/kernel/domainname").read())'),
  },
  {
    name: "write to /sys",
    python: () =>
      tried(
        'path = "/sys/fs/cgroup/troupe-test-dir"\nos.listdir("/sys")\nassert len(os.listdir("/sys/fs/cgroup")) > 0',
      ),
  },
  {
    name: "read the kernel log",
    python: () => tried('descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)\nos.read(descriptor, 10000)'),
  },
  {
    name: "open the memory of the kernel",
    python: () => tried('os.open("/dev/mem", os.O_RDONLY)'),
    hasNoControl: true,
  },
  {
    name: "list the disks",
    python: () => tried('assert any(name.startswith(("sd", "vd", "nvme", "loop")) for name in os.listdir("/dev"))'),
  },
  {
    name: "set the program that gets core dumps",
    python: () => tried('path = "/proc/sys/kernel/core_pattern"\nold = open(path).read()\nopen(path, "w").write(old)'),
  },
  {
    name: "reboot by the trigger",
    hasNoControl: true,
    python: () =>
      tried(
        'os.open("/proc/sysrq-trigger", os.O_WRONLY)\nassert os.path.getsize("/proc/sysrq-trigger") >= 0 and os.stat("/proc/sysrq-trigger").st_rdev == 0',
      ),
  },
  {
    name: "list the folders beside the work folder",
    python: () => tried('assert "other" in os.listdir("../..")'),
  },
  {
    name: "write a file through /proc/self/root",
    python: ({ hostFolder }) =>
      tried(`open("/proc/self/root" + os.path.join(${JSON.stringify(hostFolder)}, "w2"), "w").write("x")`),
  },
  {
    name: "write to the temporary folder of another session",
    python: ({ otherFolder }) =>
      tried(`open(os.path.join(${JSON.stringify(otherFolder)} + ".tmp", "w"), "w").write("x")`),
  },
  {
    name: "read memory addresses of the kernel",
    python: () => tried('assert len(open("/proc/vmallocinfo").read()) > 0'),
  },
  { name: "write the memory type registers", python: () => tried('os.open("/proc/mtrr", os.O_WRONLY)') },
  { name: "watch the memory pressure of the host", python: () => tried('os.open("/proc/pressure/memory", os.O_RDWR)') },
  // The server and its processes.
  {
    name: "read the environment of the server",
    python: ({ serverPid, startVariable }) =>
      tried(`assert ${JSON.stringify(startVariable)}.encode() in open("/proc/${serverPid}/environ", "rb").read()`),
  },
  {
    name: "read the command line of the server",
    python: ({ serverPid }) => tried(`assert b"node" in open("/proc/${serverPid}/cmdline", "rb").read()`),
  },
  {
    name: "read the memory map of the server",
    python: ({ serverPid }) => tried(`assert "node" in open("/proc/${serverPid}/maps").read()`),
  },
  {
    name: "open the memory of the server",
    python: ({ serverPid }) =>
      tried(`assert "node" in os.readlink("/proc/${serverPid}/exe")\nopen("/proc/${serverPid}/mem", "rb").close()`),
  },
  {
    name: "enter the folder of the server",
    python: ({ serverPid }) =>
      tried(`assert "node" in os.readlink("/proc/${serverPid}/exe")\nos.listdir("/proc/${serverPid}/cwd/")`),
  },
  {
    name: "list the descriptors of the server",
    python: ({ serverPid }) =>
      tried(`assert "node" in os.readlink("/proc/${serverPid}/exe")\nos.listdir("/proc/${serverPid}/fd")`),
  },
  {
    name: "signal the server",
    python: ({ serverPid }) =>
      tried(`os.kill(${serverPid}, 0)\nassert "node" in os.readlink("/proc/${serverPid}/exe")`),
  },
  {
    name: "signal the server by a descriptor",
    python: ({ serverPid }) =>
      tried(`signal.pidfd_send_signal(os.pidfd_open(${serverPid}), 0)\nassert os.path.exists("/proc/${serverPid}")`),
  },
  {
    name: "change the priority of the server",
    python: ({ serverPid }) =>
      tried(
        `os.setpriority(os.PRIO_PROCESS, ${serverPid}, os.getpriority(os.PRIO_PROCESS, ${serverPid}))\nassert "node" in os.readlink("/proc/${serverPid}/exe")`,
      ),
  },
  {
    name: "read the limits of the server",
    python: ({ serverPid }) =>
      tried(
        `import resource\nresource.prlimit(${serverPid}, resource.RLIMIT_NOFILE)\nassert "node" in os.readlink("/proc/${serverPid}/exe")`,
      ),
  },
  {
    name: "find the server among the processes",
    python: () =>
      // Compares program files, not process names, because Node 24 renames its main thread. Processes may end during the search.
      tried(
        'def program(pid):\n    try: return os.path.basename(os.readlink(f"/proc/{pid}/exe"))\n    except OSError: return ""\nassert "node" in [program(pid) for pid in os.listdir("/proc") if pid.isdigit()]',
      ),
  },
  {
    name: "see the secret in the own environment",
    python: ({ secret }) => tried(`assert ${JSON.stringify(secret)} in os.environ.values()`),
    hasNoControl: true,
  },
  {
    name: "find descriptors of the server",
    python: ({ inherited }) =>
      tried(
        `targets = [os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd") if int(n) > 2 and os.path.lexists("/proc/self/fd/" + n)]\nassert set(targets) - set(${JSON.stringify(inherited)}), targets`,
      ),
    hasNoControl: true,
  },
  {
    name: "trace another process",
    python: () =>
      tried(
        `child = subprocess.Popen(["sleep", "5"])\n${libc}result = libc.ptrace(16, child.pid, 0, 0)\nchild.kill()\nassert result == 0, os.strerror(ctypes.get_errno())`,
      ),
  },
  {
    name: "read the memory of another process",
    python: () =>
      tried(
        `buffer = ctypes.create_string_buffer(8)\nclass Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]\nlocal, remote = Vec(ctypes.addressof(buffer), 8), Vec(ctypes.addressof(buffer), 8)\n${syscall(310, 270, "os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, ctypes.c_long(0)")}`,
      ),
  },
  // Privileges and namespaces.
  { name: "become root", python: () => tried("os.setuid(0)\nassert os.getuid() == 0 and open('/etc/shadow')") },
  {
    name: "run a program with the set-user-id bit",
    python: ({ setuidProgram }) =>
      tried(
        `assert subprocess.run([${JSON.stringify(setuidProgram)}, "-u"], capture_output=True, text=True).stdout.strip() == "0"`,
      ),
  },
  {
    name: "mount a file system",
    python: () =>
      tried(
        `os.makedirs("m1", exist_ok=True)\n${check('libc.mount(b"none", b"m1", b"tmpfs", 0, None)')}\nlibc.umount2(b"m1", 2)`,
      ),
  },
  {
    name: "remount the root writable",
    python: () => tried(`${check('libc.mount(None, b"/usr", None, 32 | 4096, None)')}`),
    hasNoControl: true,
  },
  {
    name: "change the root folder",
    python: () =>
      tried(
        'pid = os.fork()\nif pid == 0:\n    try:\n        os.chroot("/")\n        os._exit(0)\n    except OSError:\n        os._exit(1)\nassert os.waitpid(pid, 0)[1] == 0',
      ),
  },
  {
    name: "make a device",
    python: () =>
      tried(
        'os.path.exists("d1") and os.remove("d1")\nos.mknod("d1", stat.S_IFCHR | 0o600, os.makedev(1, 1))\nos.remove("d1")',
      ),
  },
  {
    name: "make a user namespace",
    python: () =>
      tried(
        `pid = os.fork()\nif pid == 0:\n    os._exit(0 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 1)\nassert os.waitpid(pid, 0)[1] == 0`,
      ),
  },
  {
    name: "make a network namespace",
    python: () =>
      tried(
        `pid = os.fork()\nif pid == 0:\n    os._exit(0 if ctypes.CDLL(None).unshare(0x50000000) == 0 else 1)\nassert os.waitpid(pid, 0)[1] == 0`,
      ),
  },
  {
    name: "enter the namespaces of another process",
    python: () =>
      tried(
        `pid = os.fork()\nif pid == 0:\n    descriptor = os.open("/proc/self/ns/uts", os.O_RDONLY)\n    os._exit(0 if ctypes.CDLL(None).setns(descriptor, 0) == 0 else 1)\nassert os.waitpid(pid, 0)[1] == 0`,
      ),
  },
  {
    name: "clone with new namespaces",
    python: () =>
      tried(syscall(56, 220, "0x10000011, 0, 0, 0, 0").replace("assert", "if result == 0: os._exit(0)\nassert")),
  },
  { name: "set the host name", python: () => tried("socket.sethostname(socket.gethostname())") },
  { name: "set the clock", python: () => tried("time.clock_settime(time.CLOCK_REALTIME, time.time())") },
  {
    name: "use io_uring",
    python: () => tried(`parameters = ctypes.create_string_buffer(120)\n${syscall(425, 425, "4, parameters")}`),
  },
  {
    name: "load a BPF program",
    python: () =>
      tried(`attributes = (ctypes.c_uint32 * 18)(2, 4, 4, 1)\n${syscall(321, 280, "0, ctypes.byref(attributes), 72")}`),
  },
  {
    name: "use performance events",
    python: () =>
      tried(
        `attributes = (ctypes.c_uint32 * 32)(1, 128)\n${syscall(298, 241, "ctypes.byref(attributes), 0, -1, -1, 0")}`,
      ),
  },
  { name: "use the key ring", python: () => tried(syscall(250, 219, "0, -3, 1")) },
  { name: "handle page faults of others", python: () => tried(syscall(323, 282, "0")) },
  {
    name: "take a handle of a file",
    python: () =>
      tried(
        `handle = (ctypes.c_uint32 * 40)(128)\nmount = ctypes.c_int()\n${syscall(303, 264, 'ctypes.c_int(-100), b"/usr", handle, ctypes.byref(mount), 0')}`,
      ),
  },
  {
    name: "put input into the terminal",
    python: () => tried(`import fcntl, pty\nmaster, slave = pty.openpty()\nfcntl.ioctl(slave, 0x5412, b"x")`),
  },
  { name: "change the personality", python: () => tried(syscall(135, 92, "0x0040000")) },
  // Network.
  {
    name: "open a raw socket",
    python: () => tried("socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"),
  },
  { name: "open a packet socket", python: () => tried("socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)") },
  { name: "open a netlink socket", python: () => tried("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)") },
  {
    name: "open a socket of the machine monitor",
    python: () => tried("socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
  },
  {
    name: "open a socket of an unusual protocol",
    python: () => tried("socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)"),
  },
  {
    name: "connect to a Unix socket of the host",
    python: ({ socketPath }) =>
      tried(`peer = socket.socket(socket.AF_UNIX)\npeer.connect(${JSON.stringify(socketPath)})`),
  },
  {
    name: "connect to a port of the host",
    python: ({ port }) => tried(`socket.create_connection(("127.0.0.1", ${port}), 3)`),
  },
  {
    name: "connect to a metadata address",
    python: ({ metadataPort }) => tried(`socket.create_connection(("127.66.254.169", ${metadataPort}), 3)`),
  },
  {
    name: "connect to an abstract socket of the host",
    python: ({ abstractName }) =>
      tried(
        `peer = socket.socket(socket.AF_UNIX)\npeer.settimeout(3)\npeer.connect(("\\0" + ${JSON.stringify(abstractName)}).ljust(108, "\\0"))`,
      ),
  },
  {
    name: "see the network cards of the host",
    python: () => tried("assert any(name != 'lo' for _, name in socket.if_nameindex())"),
  },
  {
    name: "send a datagram to the host",
    python: ({ port }) =>
      tried(
        `peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\npeer.connect(("127.0.0.1", ${port}))\npeer.send(b"x")\nassert socket.if_nameindex()[1:]`,
      ),
  },
];
