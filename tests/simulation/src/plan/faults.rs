//! What is done to the cluster in a run, and how it is drawn from the seed for each kind of plan.

use rand::{Rng as _, rngs::SmallRng};

use super::Kind;

/// How long a task does not stop that does not: longer than anybody waits for it, and not so long that a job
/// in which it happens to be begun could not end.
const FOR_EVER_MS: u64 = 40_000;

/// Something that is done to the cluster. Machines are picked by chance when it comes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A node joins.
    Join,
    /// A machine dies.
    Kill,
    /// The machine that leads dies.
    KillLeader,
    /// A machine stands still for a while.
    Freeze { ms: u64 },
    /// The machine that leads stands still.
    FreezeLeader { ms: u64 },
    /// A node is told to leave, by a signal.
    Drain,
    /// The same, and told again a moment later.
    DrainTwice { ms: u64 },
    /// A node is asked to leave through ZooKeeper, by an operator.
    Ask,
    /// All nodes are told to leave.
    DrainAll,
    /// Nothing comes from one machine to another.
    Cut { ms: u64 },
    /// Nothing comes from one machine to another, nor back.
    CutBothWays { ms: u64 },
    /// A machine is cut off from all others, and from the servers.
    Isolate { ms: u64 },
    /// A machine does not reach the servers.
    CutFromServers { ms: u64 },
    /// A session's connection is lost.
    Disconnect,
    /// The servers end a session whose node is well.
    Expire,
    /// Nobody reaches the servers.
    ServersAway { ms: u64 },
    /// One server does not run for a while.
    ServerAway { ms: u64 },
    /// The servers commit nothing for a while.
    Stall { ms: u64 },
    /// A job is put aside for a while.
    Suspend { ms: u64 },
    /// The first job is put aside for so long.
    SuspendFirst { ms: u64 },
    /// A job is stopped.
    Cancel,
    /// The first job is stopped.
    CancelFirst,
    /// A job that is over is forgotten.
    Forget,
    /// A machine's process is killed, and another is started there.
    Restart { ms: u64 },
    /// A worker's task does not ask for so long whether it is to stop.
    Stuck { ms: u64 },
    /// The same at the machine that leads.
    StuckLeader { ms: u64 },
    /// A stranger's messages get into a node's inbox.
    Stranger,
    /// Bytes that are no message get into a node's inbox, under a member's name.
    Garbage,
    /// What nobody can read appears among members, candidates, parked tasks and letters.
    Litter,
}

impl Fault {
    /// Whether every machine runs on and reaches all the others and the servers; its connections may be lost.
    pub(super) fn spares_machines(self) -> bool {
        use Fault::{
            Cancel, CancelFirst, Disconnect, Drain, Forget, Join, Stuck, StuckLeader, Suspend, SuspendFirst,
        };
        let of_nodes = matches!(self, Join | Drain | Disconnect | Stuck { .. } | StuckLeader { .. });
        let of_jobs = matches!(self, Cancel | CancelFirst | Forget | Suspend { .. } | SuspendFirst { .. });
        of_nodes || of_jobs
    }
}

/// What goes wrong in a plan of a kind, in the order of time: milliseconds from its begin.
pub(super) fn draw(random: &mut SmallRng, kind: Kind, nodes: usize, calm_ms: u64) -> Vec<(u64, Fault)> {
    let count = match kind {
        Kind::Quiet => 0,
        Kind::ServersOnly => 2,
        Kind::LargeBatches => 1,
        Kind::Parking => 12,
        Kind::Reconnects | Kind::Outages | Kind::Stuck => random.random_range(3..=10),
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
                Kind::LargeBatches => Fault::Stall { ms: random.random_range(9_000..13_000) },
                Kind::Stalls if random.random_range(0..4) == 0 => Fault::Stall { ms: 3 * ms },
                Kind::Outages if random.random_range(0..3) == 0 => Fault::ServersAway { ms: outage(random) },
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
        // Nobody can work off a task that does not end.
        let mut cancelled_at = random.random_range(calm_ms / 2..calm_ms);
        if random.random_range(0..3) == 0 {
            // Put aside, a job waits for such a task as long as it takes; the next one must not.
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

/// What is done to jobs.
fn of_jobs(random: &mut SmallRng, ms: u64) -> Fault {
    match random.random_range(0..6) {
        0 => Fault::Cancel,
        1 => Fault::CancelFirst,
        2 | 3 => Fault::Suspend { ms },
        _ => Fault::Forget,
    }
}

/// What leaves tasks that do not stop behind.
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

/// How long the servers are away: mostly some sessions long, now and then a minute.
fn outage(random: &mut SmallRng) -> u64 {
    let most = if random.random_range(0..16) == 0 { 60_000 } else { 6_000 };
    random.random_range(1_300..most)
}

/// What lets connections be lost and made anew, and the membership change then.
fn reconnect(random: &mut SmallRng, ms: u64) -> Fault {
    match random.random_range(0..8) {
        0..3 => Fault::ServerAway { ms },
        3 | 4 => Fault::ServersAway { ms: ms / 4 },
        5 => Fault::Disconnect,
        6 => Fault::Join,
        _ => Fault::Drain,
    }
}

/// What lets tasks be parked, claimed and parked again.
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
