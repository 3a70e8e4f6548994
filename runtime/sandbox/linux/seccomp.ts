// Seccomp filter of the sandbox: a classic BPF program. It refuses system calls that tools do not need and that give access to
// the kernel or to other processes. Format: struct sock_filter (linux/filter.h), little endian.
import { checkedCalls, firstUnknownCall, refusedCalls } from "./system-calls.ts";

export interface SeccompOptions {
  /** Whether sockets of IPv4 and IPv6 may be opened. */
  readonly allowsInternet: boolean;
}

interface Architecture {
  /** AUDIT_ARCH_… of linux/audit.h. */
  readonly audit: number;
  /** Index of the architecture's numbers in the tables of system calls. */
  readonly column: 0 | 1;
}

const architectures: Readonly<Partial<Record<NodeJS.Architecture, Architecture>>> = {
  x64: { audit: 0xc000003e, column: 0 },
  arm64: { audit: 0xc00000b7, column: 1 },
};

const EPERM = 1;
const ENOSYS = 38;
const EPROTONOSUPPORT = 93;
const EAFNOSUPPORT = 97;
const RET_ALLOW = 0x7fff0000;
const RET_KILL = 0x80000000;
const RET_ERRNO = 0x00050000;

/** Offsets in struct seccomp_data. The lower half of an argument comes first. */
const NUMBER = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;

const LOAD = 0x20;
const AND = 0x54;
const JUMP_EQUAL = 0x15;
const JUMP_GREATER_EQUAL = 0x35;
const JUMP_SET = 0x45;
const RETURN = 0x06;

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET. */
const NAMESPACES = 0x7e020000;
const AF_UNIX = 1;
const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_TYPE_MASK = 0xf;
/** SOCK_STREAM, SOCK_DGRAM and SOCK_SEQPACKET. */
const socketTypes = [1, 2, 5];
/** Protocol numbers: the default of the family, TCP and UDP. */
const protocols = [0, 6, 17];
/** TIOCSTI and TIOCLINUX put input into a terminal; TIOCSETD loads a line discipline into the kernel. */
const terminalRequests = [0x5412, 0x541c, 0x5423];

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

/** Returns the program as bytes; null if the architecture is not supported. */
export function seccompProgram(
  { allowsInternet }: SeccompOptions,
  architecture: NodeJS.Architecture = process.arch,
): Uint8Array | null {
  const known = architectures[architecture];
  if (known === undefined) return null;
  const { audit, column } = known;
  const refused = Object.values(refusedCalls).flatMap((numbers) => numbers[column] ?? []);
  const { clone, clone3, socket, socketpair, ioctl } = checkedCalls;
  const families = allowsInternet ? [AF_UNIX, AF_INET, AF_INET6] : [AF_UNIX];
  const program: Instruction[] = [
    [LOAD, 0, 0, ARCH],
    [JUMP_EQUAL, 1, 0, audit],
    [RETURN, 0, 0, RET_KILL],
    [LOAD, 0, 0, NUMBER],
    [JUMP_GREATER_EQUAL, 0, 1, firstUnknownCall],
    refusal(ENOSYS),
    // clone3 is refused, because its flags are in memory, which a filter cannot read. Programs then use `clone`.
    [JUMP_EQUAL, 0, 1, clone3[column]],
    refusal(ENOSYS),
    ...refused.flatMap((number): Instruction[] => [[JUMP_EQUAL, 0, 1, number], refusal(EPERM)]),
    ...onCall(clone[column], [[LOAD, 0, 0, argument(0)], [JUMP_SET, 0, 1, NAMESPACES], refusal(EPERM)]),
    ...onCall(ioctl[column], [
      [LOAD, 0, 0, argument(1)],
      ...terminalRequests.flatMap((request): Instruction[] => [[JUMP_EQUAL, 0, 1, request], refusal(EPERM)]),
    ]),
    ...onCall(socket[column], socketRules(families)),
    ...onCall(socketpair[column], socketRules([AF_UNIX])),
    allowance,
  ];
  return encoded(program);
}

const allowance: Instruction = [RETURN, 0, 0, RET_ALLOW];

function refusal(error: number): Instruction {
  return [RETURN, 0, 0, RET_ERRNO | error];
}

/**
 * Returns instructions that run `rules` and then allow the call if the accumulator contains this call number. For
 * another number they do nothing and keep the accumulator.
 */
function onCall(number: number, rules: readonly Instruction[]): readonly Instruction[] {
  return [[JUMP_EQUAL, 0, rules.length + 1, number], ...rules, allowance];
}

/**
 * Returns rules that allow stream, datagram and sequenced-packet sockets of these families with the default protocol,
 * TCP or UDP. All other sockets are refused, such as raw, packet, netlink, vsock and crypto sockets.
 */
function socketRules(families: readonly number[]): readonly Instruction[] {
  return [
    [LOAD, 0, 0, argument(0)],
    ...oneOf(families, refusal(EAFNOSUPPORT)),
    [LOAD, 0, 0, argument(1)],
    [AND, 0, 0, SOCK_TYPE_MASK],
    ...oneOf(socketTypes, refusal(EPERM)),
    [LOAD, 0, 0, argument(2)],
    ...oneOf(protocols, refusal(EPROTONOSUPPORT)),
  ];
}

/** Returns instructions that skip `otherwise` if the accumulator contains one of the values. */
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
