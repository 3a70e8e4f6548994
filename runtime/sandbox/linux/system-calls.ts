// System calls that the sandbox refuses, with their numbers. Confined commands need none of them. Sources of the numbers:
// arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.

/** Numbers on x86-64 and on arm64; null if the architecture does not have the call. */
type Numbers = readonly [x64: number | null, arm64: number | null];

export const refusedCalls: Readonly<Record<string, Numbers>> = {
  // Access to other processes.
  ptrace: [101, 117],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  process_madvise: [440, 440],
  pidfd_getfd: [438, 438],
  kcmp: [312, 272],
  userfaultfd: [323, 282],
  perf_event_open: [298, 241],
  // Namespaces and file systems. `clone` and `clone3` are in seccomp.ts.
  unshare: [272, 97],
  setns: [308, 268],
  mount: [165, 40],
  umount2: [166, 39],
  pivot_root: [155, 41],
  chroot: [161, 51],
  open_tree: [428, 428],
  move_mount: [429, 429],
  fsopen: [430, 430],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fspick: [433, 433],
  mount_setattr: [442, 442],
  quotactl: [179, 60],
  quotactl_fd: [443, 443],
  swapon: [167, 224],
  swapoff: [168, 225],
  sysfs: [139, null],
  ustat: [136, null],
  nfsservctl: [180, 42],
  // Access to files by handle, and file events of other processes.
  name_to_handle_at: [303, 264],
  open_by_handle_at: [304, 265],
  lookup_dcookie: [212, 18],
  fanotify_init: [300, 262],
  fanotify_mark: [301, 263],
  // Kernel interfaces in which many vulnerabilities were found.
  io_uring_setup: [425, 425],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  bpf: [321, 280],
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  vmsplice: [278, 75],
  memfd_secret: [447, 447],
  modify_ldt: [154, null],
  uselib: [134, null],
  personality: [135, 92],
  // Placement of memory on NUMA nodes, also of other processes.
  mbind: [237, 235],
  set_mempolicy: [238, 237],
  set_mempolicy_home_node: [450, 450],
  migrate_pages: [256, 238],
  move_pages: [279, 239],
  // Settings of the machine.
  reboot: [169, 142],
  kexec_load: [246, 104],
  kexec_file_load: [320, 294],
  create_module: [174, null],
  init_module: [175, 105],
  finit_module: [313, 273],
  delete_module: [176, 106],
  get_kernel_syms: [177, null],
  query_module: [178, null],
  acct: [163, 89],
  syslog: [103, 116],
  _sysctl: [156, null],
  iopl: [172, null],
  ioperm: [173, null],
  vhangup: [153, 58],
  sethostname: [170, 161],
  setdomainname: [171, 162],
  settimeofday: [164, 170],
  clock_settime: [227, 112],
  clock_adjtime: [305, 266],
  adjtimex: [159, 171],
};

/**
 * First number after the calls of Linux 6.10. Later calls are refused with ENOSYS, as an older kernel does, because their
 * effects were not reviewed for this filter. The numbers of the x32 interface of x86-64 are also above this number.
 */
export const firstUnknownCall = 463;

/** Numbers of the calls whose arguments are checked. */
export const checkedCalls = {
  clone: [56, 220],
  clone3: [435, 435],
  socket: [41, 198],
  socketpair: [53, 199],
  ioctl: [16, 29],
} as const satisfies Readonly<Record<string, Numbers>>;
