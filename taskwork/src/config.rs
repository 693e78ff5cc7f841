//! Every limit of the runtime, with its unit last in its name.

/// The most nodes of one process.
pub const NODES_MAX: usize = 256;
/// The most workers of one node.
pub const WORKERS_MAX: usize = 1024;

/// The limits of one node. The defaults suit a cluster of tens to hundreds of nodes; tests make them small.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long a thief waits for an answer before it asks another node, in milliseconds.
    pub steal_answer_ms: u64,
    /// How long a victim lets a thief wait for a split before it denies, in milliseconds. Below
    /// `steal_answer_ms`.
    pub serve_wait_ms: u64,
    /// The pause of a thief after the first round of denials, in milliseconds; it doubles with each round.
    pub backoff_first_ms: u64,
    /// The longest pause of a thief between two rounds, in milliseconds.
    pub backoff_max_ms: u64,
    /// How long an idle node that was denied goes on asking before it commits what it has done, in
    /// milliseconds.
    pub commit_patience_ms: u64,
    /// How many nodes a thief asks in one round before it pauses.
    pub round_requests_max: usize,
    /// How many thieves may wait at one victim; more are denied at once.
    pub waiting_thieves_max: usize,
    /// How many tasks one grant may carry.
    pub grant_tasks_max: usize,
    /// How many bytes the tasks of one grant may have together. A larger task goes alone. To one thief no
    /// more is granted while so much is without acknowledgement.
    pub grant_bytes_max: usize,
    /// How many grants of one victim may be without acknowledgement; with more it denies. So many a thief
    /// remembers of each victim, too, so it must be the same on all nodes.
    pub open_grants_max: usize,
    /// How long a node that is not yet written into an attempt keeps tasks that it was given, in
    /// milliseconds; then it refuses them.
    pub enrol_patience_ms: u64,
    /// How much later than the node before it in order a node claims a parked task, in milliseconds.
    pub claim_stagger_ms: u64,
    /// How long a node waits with a claim at most, in milliseconds.
    pub claim_stagger_max_ms: u64,
    /// How many bytes the tasks of all grants of one victim that are without acknowledgement may have
    /// together before it denies.
    pub open_grant_bytes_max: usize,
    /// After what time an unacknowledged grant is sent again, in milliseconds; it doubles each time. A node
    /// that leaves does not wait longer each time.
    pub grant_retry_ms: u64,
    /// The longest time after which an unacknowledged grant is sent again, in milliseconds.
    pub grant_retry_max_ms: u64,
    /// At how many ids a batch is committed although the node has work left.
    pub batch_ids_commit: usize,
    /// How many ids one transaction may have: more that are to be committed go into several. At most 1,000,
    /// whatever is said here.
    pub batch_ids_max: usize,
    /// How many tasks one transaction of a leaving node may park: more are parked by several.
    pub park_tasks_max: usize,
    /// How many children a task may have before it is renewed under another id. At most 500, whatever is said
    /// here.
    pub task_children_max: usize,
    /// After what time a transaction whose outcome is unknown is tried again, in milliseconds.
    pub transaction_retry_ms: u64,
    /// How long a node that is told to leave by a signal may take, in milliseconds. In the last third it
    /// parks what nobody has taken; at the end it goes, whatever it still waits for.
    pub drain_deadline_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steal_answer_ms: 200,
            serve_wait_ms: 50,
            backoff_first_ms: 1,
            backoff_max_ms: 64,
            commit_patience_ms: 5,
            round_requests_max: 8,
            waiting_thieves_max: 64,
            grant_tasks_max: 16,
            grant_bytes_max: 4 << 20,
            open_grants_max: 256,
            enrol_patience_ms: 1_000,
            claim_stagger_ms: 3,
            claim_stagger_max_ms: 100,
            open_grant_bytes_max: 256 << 20,
            grant_retry_ms: 250,
            grant_retry_max_ms: 4_000,
            batch_ids_commit: 1_000,
            batch_ids_max: 1_000,
            park_tasks_max: 256,
            task_children_max: 256,
            transaction_retry_ms: 100,
            drain_deadline_ms: 30_000,
        }
    }
}
