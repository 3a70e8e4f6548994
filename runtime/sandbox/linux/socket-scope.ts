// Socket scope: a program of about 90 bytes that runs in the sandbox before the command. It enters a Landlock domain, in which
// abstract sockets of processes outside cannot be reached, and then executes the command. With the network of the host, nothing
// else blocks these sockets, because only network namespaces separate abstract sockets. No shell or system program can make
// these calls, so the program is built here. It is used only if a trial shows that it works (host-isolation.ts).
//
// Calls of the program: fd = landlock_create_ruleset({ scoped: ABSTRACT_UNIX_SOCKET }); landlock_restrict_self(fd, 0);
// close(fd); execve(argv[1], argv + 1, envp). If a call fails, the program exits with 126. bwrap has set no_new_privs, which
// Landlock requires.

interface Machine {
  /** e_machine of the ELF header. */
  readonly id: number;
  readonly code: string;
}

const machines: Readonly<Partial<Record<NodeJS.Architecture, Machine>>> = {
  x64: {
    id: 62,
    code: `
      6a 01                 push 1                    # attr.scoped
      6a 00                 push 0                    # attr.handled_access_net
      6a 00                 push 0                    # attr.handled_access_fs
      48 89 e7              mov rdi, rsp
      be 18 00 00 00        mov esi, 24               # size of attr
      31 d2                 xor edx, edx
      b8 bc 01 00 00        mov eax, 444              # landlock_create_ruleset
      0f 05                 syscall
      85 c0                 test eax, eax
      78 2f                 js fail
      89 c7                 mov edi, eax
      31 f6                 xor esi, esi
      b8 be 01 00 00        mov eax, 446              # landlock_restrict_self
      0f 05                 syscall
      85 c0                 test eax, eax
      75 20                 jnz fail
      b8 03 00 00 00        mov eax, 3                # close
      0f 05                 syscall
      48 83 c4 18           add rsp, 24
      58                    pop rax                   # argc
      48 8d 74 24 08        lea rsi, [rsp+8]          # argv + 1
      48 8b 3e              mov rdi, [rsi]
      48 8d 54 c4 08        lea rdx, [rsp+rax*8+8]    # envp
      b8 3b 00 00 00        mov eax, 59               # execve
      0f 05                 syscall
      bf 7e 00 00 00        fail: mov edi, 126
      b8 3c 00 00 00        mov eax, 60               # exit
      0f 05                 syscall`,
  },
  arm64: {
    id: 183,
    code: `
      e1 03 40 b2           mov x1, 1                 # attr.scoped
      e1 83 1f f8           str x1, [sp, -8]
      ff 03 1f f8           str xzr, [sp, -16]        # attr.handled_access_net
      ff 83 1e f8           str xzr, [sp, -24]        # attr.handled_access_fs
      e0 63 00 d1           sub x0, sp, 24
      e1 07 7d b2           mov x1, 24                # size of attr
      e2 03 1f aa           mov x2, xzr
      88 37 80 d2           mov x8, 444               # landlock_create_ruleset
      01 00 00 d4           svc 0
      e0 01 f8 b7           tbnz x0, 63, fail
      f3 03 00 aa           mov x19, x0
      e1 03 1f aa           mov x1, xzr
      c8 37 80 d2           mov x8, 446               # landlock_restrict_self
      01 00 00 d4           svc 0
      40 01 00 b5           cbnz x0, fail
      e0 03 13 aa           mov x0, x19
      28 07 80 d2           mov x8, 57                # close
      01 00 00 d4           svc 0
      e3 03 40 f9           ldr x3, [sp]              # argc
      e1 43 00 91           add x1, sp, 16            # argv + 1
      20 00 40 f9           ldr x0, [x1]
      22 0c 03 8b           add x2, x1, x3, lsl 3     # envp
      a8 1b 80 d2           mov x8, 221               # execve
      01 00 00 d4           svc 0
      e0 17 7f b2           fail: mov x0, 126
      a8 0b 80 d2           mov x8, 93                # exit
      01 00 00 d4           svc 0`,
  },
};

const HEADER_BYTES = 64 + 56;
/** Address at which the program is loaded. */
const BASE = 0x400000n;
const PAGE_BYTES = 0x10000n;
const readableAndExecutable = 5;

/** Returns the program as an ELF file; null if the architecture is not supported. */
export function socketScopeProgram(architecture: NodeJS.Architecture = process.arch): Uint8Array | null {
  const machine = machines[architecture];
  return machine === undefined ? null : elfFile(machine.id, bytesOf(machine.code));
}

/** Returns the bytes at the beginning of the lines. Two or more spaces separate the bytes of a line from its instruction. */
function bytesOf(listing: string): Uint8Array {
  const lines = listing.trim().split("\n");
  return Uint8Array.from(
    lines.flatMap((line) => (line.trim().split(/\s{2,}/)[0] ?? "").split(" ").map((byte) => Number.parseInt(byte, 16))),
  );
}

/** Returns a static 64-bit little-endian program of one segment. */
function elfFile(machine: number, code: Uint8Array): Uint8Array {
  const file = new Uint8Array(HEADER_BYTES + code.length);
  const view = new DataView(file.buffer);
  const size = BigInt(file.length);
  // ELF header: 64-bit, little endian, version 1, executable; one program header after it.
  file.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  view.setUint16(16, 2, true);
  view.setUint16(18, machine, true);
  view.setUint32(20, 1, true);
  view.setBigUint64(24, BASE + BigInt(HEADER_BYTES), true);
  view.setBigUint64(32, 64n, true);
  view.setUint16(52, 64, true);
  view.setUint16(54, 56, true);
  view.setUint16(56, 1, true);
  // Program header: the whole file is loaded.
  view.setUint32(64, 1, true);
  view.setUint32(68, readableAndExecutable, true);
  view.setBigUint64(80, BASE, true);
  view.setBigUint64(88, BASE, true);
  view.setBigUint64(96, size, true);
  view.setBigUint64(104, size, true);
  view.setBigUint64(112, PAGE_BYTES, true);
  file.set(code, HEADER_BYTES);
  return file;
}
