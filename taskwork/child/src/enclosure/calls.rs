//! The system calls that an enclosed process must not make. They fail with `EPERM`. Calls that need capabilities or
//! the right to trace a process (`mount`, `process_vm_readv`) are not listed, since it has neither.

use std::{collections::BTreeMap, env::consts::ARCH, io};

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen,
    SeccompCmpOp::{self, MaskedEq, Ne},
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

use super::unsupported;

/// Calls of Linux 6.13 that the bindings do not have.
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;

/// Calls that a process does not need, by the reason for which they are denied.
const DENIED: &[&[libc::c_long]] = &[
    // They leave the process group, which is killed at the latest with the node.
    &[libc::SYS_setpgid, libc::SYS_setsid],
    // It reads other processes, as Landlock also denies.
    &[libc::SYS_ptrace],
    // Their objects are shared by all processes of a user, and Landlock does not know them.
    &[
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        libc::SYS_msgget,
        libc::SYS_request_key,
        libc::SYS_semget,
        libc::SYS_shmat,
        libc::SYS_shmget,
    ],
    // Only clients have sockets, if any process has.
    &[libc::SYS_listen],
    // They change or observe files outside of the granted folders, since Landlock does not restrict them.
    &[
        libc::SYS_fanotify_init,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_fremovexattr,
        libc::SYS_fsetxattr,
        libc::SYS_inotify_init1,
        libc::SYS_lremovexattr,
        libc::SYS_lsetxattr,
        libc::SYS_open_by_handle_at,
        libc::SYS_removexattr,
        libc::SYS_setxattr,
        SETXATTRAT,
        REMOVEXATTRAT,
    ],
    // A process has capabilities in a new namespace, and in those of the same user.
    &[libc::SYS_setns, libc::SYS_unshare],
    // Parts of the kernel with many defects in the past, and system calls by a queue, which no filter sees.
    &[
        libc::SYS_bpf,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_setup,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
    ],
];

/// Older forms of denied calls.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[libc::SYS_chown, libc::SYS_inotify_init, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// The flag of the x32 ABI, with which some kernels accept the calls of x86-64 again, and calls that have another number
/// there (`sendmsg`, `ptrace`, `sendmmsg`) or another error here.
const X32: libc::c_long = 0x4000_0000;
const X32_OWN: &[libc::c_long] = &[518, 521, 538, libc::SYS_clone3];

/// The flags of `clone` for new namespaces.
const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// The bits of the type of a socket without its flags.
const KINDS: libc::c_int = 0xf;

/// The index of an argument, its comparison, and the other value.
type Condition = (u8, SeccompCmpOp, libc::c_int);

/// Denies the calls to this thread and the programs that it becomes or starts.
pub(super) fn deny(allows_tcp: bool, limits_truncation: bool) -> io::Result<()> {
    let mut rules = rules(allows_tcp).map_err(io::Error::other)?;
    if !limits_truncation {
        rules.insert(libc::SYS_truncate, Vec::new());
    }
    if cfg!(target_arch = "x86_64") {
        let again: Vec<_> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
        rules.extend(again);
        rules.extend(X32_OWN.iter().map(|call| (call | X32, Vec::new())));
    }
    // Its flags are in memory, which a filter cannot read. The C library uses `clone` instead.
    apply([(libc::SYS_clone3, Vec::new())].into(), libc::ENOSYS)?;
    apply(rules, libc::EPERM)
}

fn apply(rules: BTreeMap<libc::c_long, Vec<SeccompRule>>, errno: libc::c_int) -> io::Result<()> {
    let arch =
        TargetArch::try_from(ARCH).map_err(|_| unsupported(&format!("it has no filter for {ARCH}")))?;
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).and_then(BpfProgram::try_from);
    apply_filter(&filter.map_err(io::Error::other)?)
        .map_err(|error| unsupported(&format!("it refuses a filter of system calls: {error}")))
}

/// Returns the denied calls; one with rules is denied if all conditions of one of them hold.
fn rules(allows_tcp: bool) -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, BackendError> {
    let mut rules = BTreeMap::<_, Vec<_>>::new();
    for (call, conditions) in conditional(allows_tcp) {
        let conditions = conditions.into_iter().map(|(argument, is, value)| {
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, u64::from(value.unsigned_abs()))
        });
        rules.entry(call).or_default().push(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?);
    }
    let sockets: &[_] = if allows_tcp { &[] } else { &[libc::SYS_socket] };
    let denied = DENIED.iter().copied().flatten().chain(OLDER).chain(sockets);
    rules.extend(denied.map(|call| (*call, Vec::new())));
    Ok(rules)
}

/// Returns calls with conditions under which they are denied.
fn conditional(allows_tcp: bool) -> Vec<(libc::c_long, Vec<Condition>)> {
    let has =
        |argument, mask: libc::c_int, value| (argument, MaskedEq(u64::from(mask.unsigned_abs())), value);
    // The limits of other processes.
    let mut denied = vec![(libc::SYS_prlimit64, vec![(0, Ne, 0)])];
    denied.extend(NAMESPACES.iter().map(|flag| (libc::SYS_clone, vec![has(0, *flag, *flag)])));
    // A pair of datagram sockets sends to the sockets of services, which may be of the same user.
    let pairs = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    let kinds = (0..=KINDS).filter(|kind| !pairs.contains(kind));
    denied.push((libc::SYS_socketpair, vec![(0, Ne, libc::AF_UNIX)]));
    denied.extend(kinds.map(|kind| (libc::SYS_socketpair, vec![has(1, KINDS, kind)])));
    if allows_tcp {
        let kinds = (0..=KINDS).filter(|kind| *kind != libc::SOCK_STREAM);
        denied.push((libc::SYS_socket, vec![(0, Ne, libc::AF_INET), (0, Ne, libc::AF_INET6)]));
        denied.extend(kinds.map(|kind| (libc::SYS_socket, vec![has(1, KINDS, kind)])));
        // Landlock does not know other protocols of streams, nor connections that a message opens.
        denied.push((libc::SYS_socket, vec![(2, Ne, 0), (2, Ne, libc::IPPROTO_TCP)]));
        for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            denied.push((call, vec![has(flags, libc::MSG_FASTOPEN, libc::MSG_FASTOPEN)]));
        }
    }
    denied
}
