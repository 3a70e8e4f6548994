// Escape attempts of shell commands, with standard programs of the system. Each command prints ESCAPED if it succeeds.
// Outside the sandbox it must succeed, which shows that the attempt works.
import type { Scene } from "./attempts.ts";

export interface ShellAttempt {
  readonly name: string;
  readonly script: (scene: Scene) => string;
}

export const shellAttempts: readonly ShellAttempt[] = [
  { name: "read a secret file", script: ({ secretFile }) => `cat '${secretFile}'` },
  {
    name: "search for a secret file",
    script: ({ hostFolder }) => `find '${hostFolder}' -name secret.txt | grep -q secret`,
  },
  {
    name: "read through a link to a folder",
    script: ({ hostFolder }) => `ln -sfn '${hostFolder}' l3 && cat l3/secret.txt`,
  },
  { name: "list the home of root", script: () => "ls -A /root | grep -qv pyenv" },
  { name: "list the data of the system", script: () => "ls /var/lib | grep -q ." },
  { name: "write a program", script: () => "cp /bin/true /usr/local/bin/troupe-x && rm /usr/local/bin/troupe-x" },
  { name: "write a setting", script: () => "touch /etc/troupe-x && rm /etc/troupe-x" },
  { name: "change the mode of a file of the system", script: () => "chmod 755 /usr/bin/env" },
  {
    name: "read the environment of the server",
    script: ({ serverPid }) => `tr '\\0' '\\n' < /proc/${serverPid}/environ | grep -q =`,
  },
  { name: "list the descriptors of the server", script: ({ serverPid }) => `ls /proc/${serverPid}/fd/ | grep -q .` },
  { name: "signal the server", script: ({ serverPid }) => `kill -0 ${serverPid}` },
  { name: "enter the namespaces of the server", script: ({ serverPid }) => `nsenter --target ${serverPid} --uts true` },
  { name: "make a user namespace", script: () => "unshare --user true" },
  { name: "make a mount namespace", script: () => "unshare --mount true" },
  { name: "mount a file system", script: () => "mkdir -p m2 && mount -t tmpfs none m2 && umount m2" },
  { name: "change the root folder", script: () => "chroot / /bin/true" },
  { name: "make a device", script: () => "rm -f d2 && mknod d2 c 1 3 && rm d2" },
  { name: "become root", script: () => "setpriv --reuid 0 --regid 0 --clear-groups true" },
  { name: "run at a real-time priority", script: () => "chrt --fifo 1 true" },
  {
    name: "change a setting of the kernel",
    script: () => "x=$(cat /proc/sys/vm/swappiness) && echo $x > /proc/sys/vm/swappiness",
  },
  { name: "read the log of the kernel", script: () => "dmesg | grep -q ." },
  { name: "read the devices of the host", script: () => "ls /sys/class/net | grep -qv '^lo$'" },
  {
    name: "make a control group",
    script: () => "mkdir /sys/fs/cgroup/pids/troupe-x && rmdir /sys/fs/cgroup/pids/troupe-x",
  },
  {
    name: "see what the server does",
    script: ({ serverPid }) => `cat /proc/${serverPid}/stack /proc/${serverPid}/syscall`,
  },
];
