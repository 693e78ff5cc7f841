//! The faults of a run, and how they are drawn from the seed for each kind of plan.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use super::Kind;

/// The time for which a task "never" stops, in milliseconds: longer than any node waits for it, but short
/// enough for its job to end.
const FOR_EVER_MS: u64 = 40_000;

/// A fault or an operation on the cluster. Machines are chosen at random when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A node joins.
    Join,
    /// A machine dies.
    Kill,
    /// The machine that leads dies.
    KillLeader,
    /// A machine freezes for a while.
    Freeze { ms: u64 },
    /// The machine that leads freezes.
    FreezeLeader { ms: u64 },
    /// The machine on which the program of a workflow runs dies.
    KillCoordinator,
    /// The machine of the program freezes.
    FreezeCoordinator { ms: u64 },
    /// The node of the program is asked to leave.
    DrainCoordinator,
    /// A node is asked to leave by a signal.
    Drain,
    /// A node is asked to leave by two signals.
    DrainTwice { ms: u64 },
    /// A node is asked to leave through ZooKeeper, by an operator.
    Ask,
    /// All nodes are asked to leave.
    DrainAll,
    /// A node is cordoned for a while.
    Cordon { ms: u64 },
    /// All nodes are cordoned for a while.
    CordonAll { ms: u64 },
    /// No messages pass from one machine to another.
    Cut { ms: u64 },
    /// No messages pass between two machines.
    CutBothWays { ms: u64 },
    /// A machine is cut off from all others and from the servers.
    Isolate { ms: u64 },
    /// A machine does not reach the servers.
    CutFromServers { ms: u64 },
    /// A session's connection is lost.
    Disconnect,
    /// The servers end the session of a healthy node.
    Expire,
    /// No machine reaches the servers.
    ServersAway { ms: u64 },
    /// One server is down for a while.
    ServerAway { ms: u64 },
    /// The servers commit nothing for a while.
    Stall { ms: u64 },
    /// A job is suspended for a while.
    Suspend { ms: u64 },
    /// The first job is suspended for this long.
    SuspendFirst { ms: u64 },
    /// A job is cancelled.
    Cancel,
    /// The first job is cancelled.
    CancelFirst,
    /// A job that is over is forgotten.
    Forget,
    /// A machine's process is killed, and another one is started there.
    Restart { ms: u64 },
    /// A worker's task does not check for this long whether it should stop.
    Stuck { ms: u64 },
    /// The same on the machine of the leader.
    StuckLeader { ms: u64 },
    /// A stranger's messages arrive in a node's inbox.
    Stranger,
    /// Bytes that are not a message arrive in a node's inbox, under a member's name.
    Garbage,
    /// Unreadable znodes appear among members, candidates, parked tasks and letters.
    Litter,
}

impl Fault {
    /// Returns whether every machine keeps running and reaches all others and the servers; connections may
    /// break.
    pub(super) fn spares_machines(self) -> bool {
        use Fault::{
            Cancel, CancelFirst, Cordon, CordonAll, Disconnect, Drain, DrainCoordinator, Forget, Join, Stuck,
            StuckLeader, Suspend, SuspendFirst,
        };
        let of_nodes = matches!(
            self,
            Join | Cordon { .. }
                | CordonAll { .. }
                | Drain
                | DrainCoordinator
                | Disconnect
                | Stuck { .. }
                | StuckLeader { .. }
        );
        let of_jobs = matches!(self, Cancel | CancelFirst | Forget | Suspend { .. } | SuspendFirst { .. });
        of_nodes || of_jobs
    }
}

/// Draws the faults for a kind of plan, sorted by time, in milliseconds from the start.
pub(super) fn draw(random: &mut SmallRng, kind: Kind, nodes: usize, calm_ms: u64) -> Vec<(u64, Fault)> {
    let count = match kind {
        Kind::Quiet | Kind::Weights => 0,
        Kind::ServersOnly => 2,
        Kind::LargeBatches => 1,
        Kind::Parking => 12,
        Kind::Reconnects | Kind::Outages | Kind::Stuck => random.random_range(3..=10),
        Kind::Leaves => random.random_range(1..=2 * nodes),
        _ => random.random_range(2..=10 + nodes.min(30)),
    };
    let mut faults: Vec<(u64, Fault)> = (0..count)
        .map(|_| {
            let at = random.random_range(0..calm_ms);
            let ms = [20, 200, 900, 1_500, 3_000][random.random_range(0..5)];
            let ms = random.random_range(ms / 2..=ms);
            let fault = match kind {
                Kind::ServersOnly => Fault::ServersAway { ms },
                Kind::Parking => parking(random, ms),
                Kind::Reconnects => reconnect(random, ms),
                Kind::Queue if random.random_range(0..3) == 0 => of_jobs(random, ms),
                Kind::Stuck => stuck(random, ms),
                Kind::Leaves => leave(random),
                Kind::Workflow if random.random_range(0..4) == 0 => of_coordinator(random, ms),
                Kind::LargeBatches => Fault::Stall { ms: random.random_range(9_000..13_000) },
                Kind::Stalls if random.random_range(0..4) == 0 => Fault::Stall { ms: 3 * ms },
                Kind::Outages if random.random_range(0..3) == 0 => Fault::ServersAway { ms: outage(random) },
                Kind::WeightsAndFaults => match fault(random, ms) {
                    // A suspended job has no share.
                    Fault::Suspend { .. } => Fault::Join,
                    fault => fault,
                },
                _ => fault(random, ms),
            };
            (at, fault)
        })
        .collect();
    if kind == Kind::LargeBatches {
        for (at, _) in &mut faults {
            *at = random.random_range(300..600);
        }
    }
    if kind == Kind::Stuck {
        // A task that does not end cannot be completed, so the job must be cancelled.
        let mut cancelled_at = random.random_range(calm_ms / 2..calm_ms);
        if random.random_range(0..3) == 0 {
            // A suspended job waits for such a task indefinitely; the next job must not.
            let at = random.random_range(0..calm_ms / 2);
            faults.push((at, Fault::StuckLeader { ms: FOR_EVER_MS }));
            faults.push((at + random.random_range(50..500), Fault::SuspendFirst { ms: FOR_EVER_MS }));
            cancelled_at = at + FOR_EVER_MS;
        }
        faults.push((cancelled_at, Fault::CancelFirst));
    }
    faults.sort_by_key(|&(at, _)| at);
    faults
}

/// An odd number without a pattern, which separates the cordons from the other choices of a seed.
const CORDONS_SALT: u64 = 0xd6e8_feb8_6659_fd93;
/// One in this number of plans has cordons.
const CORDONS_ONE_IN: u64 = 4;
/// The longest time for which nodes are cordoned, in milliseconds.
const CORDON_MS_MAX: u64 = 3_000;

/// Draws cordons. They are drawn separately, so that all other random choices stay the same.
pub(super) fn cordons(seed: u64, kind: Kind, calm_ms: u64) -> Vec<(u64, Fault)> {
    let mut random = SmallRng::seed_from_u64(seed ^ CORDONS_SALT);
    let is_measured =
        matches!(kind, Kind::Quiet | Kind::Weights | Kind::WeightsAndFaults | Kind::ServersOnly);
    if is_measured || random.random_range(0..CORDONS_ONE_IN) > 0 {
        return Vec::new();
    }
    let count = random.random_range(1..=6);
    let cordons = (0..count).map(|_| {
        let (at, ms) = (random.random_range(0..calm_ms), random.random_range(10..CORDON_MS_MAX));
        let all = random.random_range(0..6) == 0;
        (at, if all { Fault::CordonAll { ms } } else { Fault::Cordon { ms } })
    });
    cordons.collect()
}

/// Draws an operation on a job.
fn of_jobs(random: &mut SmallRng, ms: u64) -> Fault {
    match random.random_range(0..6) {
        0 => Fault::Cancel,
        1 => Fault::CancelFirst,
        2 | 3 => Fault::Suspend { ms },
        _ => Fault::Forget,
    }
}

/// Draws a fault that leaves tasks which do not stop.
fn stuck(random: &mut SmallRng, ms: u64) -> Fault {
    let ms = if random.random_range(0..3) == 0 { FOR_EVER_MS } else { ms };
    match random.random_range(0..8) {
        0..3 => Fault::Stuck { ms },
        3..5 => Fault::StuckLeader { ms },
        5 => Fault::Join,
        6 => Fault::Drain,
        _ => Fault::Disconnect,
    }
}

/// Draws a join or a leave.
fn leave(random: &mut SmallRng) -> Fault {
    match random.random_range(0..16) {
        0..8 => Fault::Join,
        8..12 => Fault::Drain,
        12..15 => Fault::DrainCoordinator,
        _ => Fault::DrainAll,
    }
}

/// Draws a fault at the program of a workflow.
fn of_coordinator(random: &mut SmallRng, ms: u64) -> Fault {
    match random.random_range(0..3) {
        0 => Fault::KillCoordinator,
        1 => Fault::FreezeCoordinator { ms },
        _ => Fault::DrainCoordinator,
    }
}

/// Draws the duration of an outage, in milliseconds: usually some sessions long, sometimes a minute.
fn outage(random: &mut SmallRng) -> u64 {
    let most = if random.random_range(0..16) == 0 { 60_000 } else { 6_000 };
    random.random_range(1_300..most)
}

/// Draws a fault that breaks connections, which are then re-established, or a change of the membership.
fn reconnect(random: &mut SmallRng, ms: u64) -> Fault {
    match random.random_range(0..8) {
        0..3 => Fault::ServerAway { ms },
        3 | 4 => Fault::ServersAway { ms: ms / 4 },
        5 => Fault::Disconnect,
        6 => Fault::Join,
        _ => Fault::Drain,
    }
}

/// Draws a fault that causes tasks to be parked, claimed and parked again.
fn parking(random: &mut SmallRng, ms: u64) -> Fault {
    match random.random_range(0..4) {
        0 => Fault::DrainAll,
        1 => Fault::Suspend { ms: ms / 10 },
        _ => Fault::Join,
    }
}

fn fault(random: &mut SmallRng, ms: u64) -> Fault {
    match random.random_range(0..100) {
        0..16 => Fault::Join,
        16..20 => Fault::Kill,
        20 | 21 => Fault::Restart { ms: ms / 4 },
        22..25 => Fault::KillLeader,
        25..31 => Fault::Freeze { ms },
        31..35 => Fault::FreezeLeader { ms },
        35..47 => Fault::Drain,
        47..51 => Fault::DrainTwice { ms: ms / 2 },
        51..54 => Fault::Ask,
        54..56 => Fault::DrainAll,
        56..62 => Fault::Cut { ms },
        62..67 => Fault::CutBothWays { ms },
        67..72 => Fault::Isolate { ms },
        72..78 => Fault::CutFromServers { ms },
        78..83 => Fault::Disconnect,
        83 => Fault::Stuck { ms },
        84..87 => Fault::Expire,
        87..89 => Fault::ServersAway { ms },
        89 => Fault::ServerAway { ms },
        90 => Fault::Stall { ms },
        91..93 => Fault::Suspend { ms },
        93..96 => Fault::Stranger,
        96..98 => Fault::Garbage,
        _ => Fault::Litter,
    }
}
