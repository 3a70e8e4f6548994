import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { seccompProgram } from "../../../../runtime/sandbox/linux/seccomp.ts";
import { refusedCalls } from "../../../../runtime/sandbox/linux/system-calls.ts";

const allowed = "allowed";
const killed = "killed";

interface Call {
  readonly number: number;
  readonly audit: number;
  readonly args?: readonly number[];
}

/** Interprets the seccomp filter program as the kernel does. Returns its decision: an action name, or an error number. */
function decide(program: Uint8Array, { number, audit, args = [] }: Call): string | number {
  const data = new DataView(new ArrayBuffer(64));
  data.setUint32(0, number, true);
  data.setUint32(4, audit, true);
  for (const [i, value] of args.entries()) data.setBigUint64(16 + 8 * i, BigInt(value), true);
  const view = new DataView(program.buffer, program.byteOffset);
  let accumulator = 0;
  for (let at = 0; ; at++) {
    assert.ok(8 * at < program.length, "the program ends with a return");
    const [code, value] = [view.getUint16(8 * at, true), view.getUint32(8 * at + 4, true)];
    const jump = (holds: boolean): number => view.getUint8(8 * at + (holds ? 2 : 3));
    if (code === 0x20) accumulator = data.getUint32(value, true);
    else if (code === 0x54) accumulator = (accumulator & value) >>> 0;
    else if (code === 0x15) at += jump(accumulator === value);
    else if (code === 0x35) at += jump(accumulator >= value);
    else if (code === 0x45) at += jump((accumulator & value) !== 0);
    else if (code === 0x06) {
      if (value === 0x7fff0000) return allowed;
      return value === 0x80000000 ? killed : value & 0xffff;
    } else assert.fail(`unknown instruction ${code}`);
  }
}

const [EPERM, ENOSYS, EPROTONOSUPPORT, EAFNOSUPPORT] = [1, 38, 93, 97];
const machines = [
  {
    name: "x64",
    column: 0,
    audit: 0xc000003e,
    read: 0,
    openat: 257,
    mmap: 9,
    clone: 56,
    socket: 41,
    socketpair: 53,
    ioctl: 16,
  },
  {
    name: "arm64",
    column: 1,
    audit: 0xc00000b7,
    read: 63,
    openat: 56,
    mmap: 222,
    clone: 220,
    socket: 198,
    socketpair: 199,
    ioctl: 29,
  },
] as const;

for (const machine of machines) {
  describe(`the filter of system calls on ${machine.name}`, () => {
    const program = seccompProgram({ allowsInternet: true }, machine.name) ?? assert.fail("there is a program");
    const offline = seccompProgram({ allowsInternet: false }, machine.name) ?? assert.fail("there is a program");
    const on = (number: number, args: readonly number[] = [], from = program): string | number =>
      decide(from, { number, audit: machine.audit, args });

    it("refuses the listed calls, and unknown ones, and allows others", () => {
      for (const [name, numbers] of Object.entries(refusedCalls)) {
        const number = numbers[machine.column];
        if (number !== null) assert.equal(on(number), EPERM, name);
      }
      for (const number of [463, 500, 0x40000000, 0x40000065, 0xffffffff]) assert.equal(on(number), ENOSYS);
      for (const number of [machine.read, machine.openat, machine.mmap, 436, 439, 441, 462])
        assert.equal(on(number), allowed);
    });

    it("ends a process that uses the calls of another architecture", () => {
      assert.equal(decide(program, { number: machine.read, audit: 0x40000003 }), killed);
    });

    it("refuses new namespaces, and allows processes and threads", () => {
      for (const flag of [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]) {
        assert.equal(on(machine.clone, [flag | 17]), EPERM);
      }
      for (const flags of [17, 0x3d0f00, 0x1200011]) assert.equal(on(machine.clone, [flags]), allowed);
      assert.equal(on(435), ENOSYS);
    });

    it("refuses input to terminals", () => {
      for (const request of [0x5412, 0x541c, 0x5423]) assert.equal(on(machine.ioctl, [0, request]), EPERM);
      for (const request of [0x5401, 0x5413, 0x5421]) assert.equal(on(machine.ioctl, [0, request]), allowed);
    });

    it("allows only sockets of streams and datagrams", () => {
      const [stream, datagram, raw, packet, closeOnExec] = [1, 2, 3, 10, 0o2000000];
      for (const family of [1, 2, 10]) {
        for (const type of [stream, datagram, stream | closeOnExec]) {
          assert.equal(on(machine.socket, [family, type, 0]), allowed);
        }
        for (const type of [raw, packet, raw | closeOnExec]) assert.equal(on(machine.socket, [family, type, 0]), EPERM);
        for (const protocol of [1, 132, 136, 255, 262]) {
          assert.equal(on(machine.socket, [family, stream, protocol]), EPROTONOSUPPORT);
        }
      }
      assert.equal(on(machine.socket, [2, stream, 6]), allowed);
      assert.equal(on(machine.socket, [10, datagram, 17]), allowed);
      for (const family of [0, 3, 9, 16, 17, 21, 29, 30, 38, 40, 44]) {
        assert.equal(on(machine.socket, [family, stream, 0]), EAFNOSUPPORT);
      }
      assert.equal(on(machine.socketpair, [1, stream, 0]), allowed);
      assert.equal(on(machine.socketpair, [30, stream, 0]), EAFNOSUPPORT);
    });

    it("allows no sockets of the internet without a network", () => {
      assert.equal(on(machine.socket, [1, 1, 0], offline), allowed);
      for (const family of [2, 10]) assert.equal(on(machine.socket, [family, 1, 0], offline), EAFNOSUPPORT);
    });
  });
}

describe("the filter of system calls", () => {
  it("does not exist for other architectures", () => {
    assert.equal(seccompProgram({ allowsInternet: true }, "ppc64"), null);
  });
});
