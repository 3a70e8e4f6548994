// Seccomp filter of the sandbox: a classic BPF program that refuses system calls which a tool does not need and which reach into
// the kernel or into other processes. Numbers of system calls: arch/x86/entry/syscalls/syscall_64.tbl and
// include/uapi/asm-generic/unistd.h of Linux. Format: struct sock_filter (linux/filter.h), little endian.

export interface SeccompOptions {
  /** Whether sockets of IPv4 and IPv6 may be opened. */
  readonly allowsInternet: boolean;
}

interface Architecture {
  /** AUDIT_ARCH_… of linux/audit.h. */
  readonly audit: number;
  readonly clone: number;
  readonly socket: number;
  readonly ioctl: number;
  readonly denied: readonly number[];
}

/** System calls with the same number on all architectures: clone3, io_uring, the new mount calls, and others. */
const CLONE3 = 435;
const common = [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 440, 442, 443, 447];

const architectures: Readonly<Partial<Record<NodeJS.Architecture, Architecture>>> = {
  x64: {
    audit: 0xc000003e,
    clone: 56,
    socket: 41,
    ioctl: 16,
    denied: [
      101,
      103,
      134,
      135,
      136,
      139,
      153,
      154,
      155,
      156,
      159,
      161,
      163,
      164,
      165,
      166,
      167,
      168,
      169,
      170,
      171,
      172,
      173,
      174,
      175,
      176,
      177,
      178,
      179,
      180,
      212,
      227,
      237,
      238,
      246,
      248,
      249,
      250,
      256,
      272,
      278,
      279,
      298,
      300,
      303,
      304,
      305,
      308,
      310,
      311,
      312,
      313,
      320,
      321,
      323,
      ...common,
    ],
  },
  arm64: {
    audit: 0xc00000b7,
    clone: 220,
    socket: 198,
    ioctl: 29,
    denied: [
      18,
      39,
      40,
      41,
      42,
      51,
      58,
      60,
      75,
      89,
      92,
      97,
      104,
      105,
      106,
      112,
      116,
      117,
      142,
      161,
      162,
      170,
      171,
      217,
      218,
      219,
      224,
      225,
      235,
      237,
      238,
      239,
      241,
      262,
      264,
      265,
      266,
      268,
      270,
      271,
      272,
      273,
      280,
      282,
      294,
      ...common,
    ],
  },
};

const EPERM = 1;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;
const RET_ALLOW = 0x7fff0000;
const RET_KILL = 0x80000000;
const RET_ERRNO = 0x00050000;

/** Offsets in struct seccomp_data. */
const NUMBER = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;

const LOAD = 0x20;
const AND = 0x54;
const JUMP_EQUAL = 0x15;
const JUMP_GREATER_EQUAL = 0x35;
const JUMP_SET = 0x45;
const RETURN = 0x06;

/** First number of the x32 interface, whose calls would bypass the list. */
const X32 = 0x40000000;
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET. */
const NAMESPACES = 0x7e020000;
const AF_UNIX = 1;
const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_TYPE_MASK = 0xf;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_SEQPACKET = 5;
/** ioctl requests that put input into a terminal. */
const terminalRequests = [0x5412, 0x541c];

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

/** Returns the program as bytes; null: the architecture is not known. */
export function seccompProgram(
  { allowsInternet }: SeccompOptions,
  architecture: NodeJS.Architecture = process.arch,
): Uint8Array | null {
  const known = architectures[architecture];
  if (known === undefined) return null;
  const program: Instruction[] = [
    [LOAD, 0, 0, ARCH],
    [JUMP_EQUAL, 1, 0, known.audit],
    [RETURN, 0, 0, RET_KILL],
    [LOAD, 0, 0, NUMBER],
    ...(architecture === "x64" ? refuseFrom(X32) : []),
    ...refuse(CLONE3, ENOSYS),
    ...known.denied.flatMap((number) => refuse(number, EPERM)),
    ...onCall(known.clone, [[LOAD, 0, 0, argument(0)], [JUMP_SET, 0, 1, NAMESPACES], refusal(EPERM), allowance]),
    ...onCall(known.ioctl, [
      [LOAD, 0, 0, argument(1)],
      ...terminalRequests.flatMap((request): Instruction[] => [[JUMP_EQUAL, 0, 1, request], refusal(EPERM)]),
      allowance,
    ]),
    ...onCall(known.socket, socketRules(allowsInternet)),
    allowance,
  ];
  return encoded(program);
}

const allowance: Instruction = [RETURN, 0, 0, RET_ALLOW];

function refusal(error: number): Instruction {
  return [RETURN, 0, 0, RET_ERRNO | error];
}

function refuse(number: number, error: number): readonly Instruction[] {
  return [[JUMP_EQUAL, 0, 1, number], refusal(error)];
}

function refuseFrom(number: number): readonly Instruction[] {
  return [[JUMP_GREATER_EQUAL, 0, 1, number], refusal(ENOSYS)];
}

/** Runs `rules`, which end with a return, if the call has this number. The accumulator has the number before and after. */
function onCall(number: number, rules: readonly Instruction[]): readonly Instruction[] {
  return [[JUMP_EQUAL, 0, rules.length, number], ...rules];
}

/** Only local, stream and datagram sockets: no raw, packet, netlink, vsock or crypto sockets. */
function socketRules(allowsInternet: boolean): readonly Instruction[] {
  const families = allowsInternet ? [AF_UNIX, AF_INET, AF_INET6] : [AF_UNIX];
  const types = [SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET];
  return [
    [LOAD, 0, 0, argument(0)],
    ...oneOf(families, refusal(EAFNOSUPPORT)),
    [LOAD, 0, 0, argument(1)],
    [AND, 0, 0, SOCK_TYPE_MASK],
    ...oneOf(types, refusal(EPERM)),
    allowance,
  ];
}

/** Continues after `otherwise` if the accumulator has one of the values. */
function oneOf(values: readonly number[], otherwise: Instruction): readonly Instruction[] {
  const tests = values.map((value, i): Instruction => [JUMP_EQUAL, values.length - i, 0, value]);
  return [...tests, otherwise];
}

function encoded(program: readonly Instruction[]): Uint8Array {
  const bytes = new Uint8Array(8 * program.length);
  const view = new DataView(bytes.buffer);
  for (const [i, [code, ifTrue, ifFalse, value]] of program.entries()) {
    view.setUint16(8 * i, code, true);
    view.setUint8(8 * i + 2, ifTrue);
    view.setUint8(8 * i + 3, ifFalse);
    view.setUint32(8 * i + 4, value >>> 0, true);
  }
  return bytes;
}
