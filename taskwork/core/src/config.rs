//! The limits of the runtime; each name ends with its unit.

/// The maximum number of nodes of one process.
pub const NODES_MAX: usize = 256;
/// The maximum number of workers of one node.
pub const WORKERS_MAX: usize = 1024;

/// The upper limit for a node's written holdings, in bytes: the maximum data of one znode, minus the other content of
/// the transaction.
pub const LEDGER_BYTES_MAX: usize = 60 << 20;

/// The limits of one node. The defaults suit a cluster of tens to hundreds of nodes; tests use smaller ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum time for which a thief waits for an answer before it asks another node, in milliseconds.
    pub steal_answer_ms: u64,
    /// The maximum time for which a victim keeps a thief waiting for a split before it denies, in
    /// milliseconds. Must be below `steal_answer_ms`.
    pub serve_wait_ms: u64,
    /// A thief's pause after the first round of denials, in milliseconds; it doubles with each round.
    pub backoff_first_ms: u64,
    /// A thief's maximum pause between two rounds, in milliseconds.
    pub backoff_max_ms: u64,
    /// The time for which an idle node that was denied continues to ask before it commits its completed work,
    /// in milliseconds.
    pub commit_patience_ms: u64,
    /// The number of nodes that a thief asks in one round before it pauses.
    pub round_requests_max: usize,
    /// The maximum number of thieves waiting at one victim; further ones are denied immediately.
    pub waiting_thieves_max: usize,
    /// The maximum number of tasks in one grant.
    pub grant_tasks_max: usize,
    /// The maximum size of the tasks of one grant, in bytes. A larger task is granted alone. A victim grants no
    /// more to a thief that has this much unacknowledged.
    pub grant_bytes_max: usize,
    /// The maximum number of unacknowledged grants of one victim; beyond it the victim denies. A thief also
    /// remembers this many grants of each victim, so it must be the same on all nodes.
    pub open_grants_max: usize,
    /// The time for which a node that is not yet enrolled keeps tasks that were granted to it, in
    /// milliseconds; then it refuses them.
    pub enrol_patience_ms: u64,
    /// The delay between the claims of two successive nodes for the same parked task, in milliseconds.
    pub claim_stagger_ms: u64,
    /// The maximum delay of a node's claim, in milliseconds.
    pub claim_stagger_max_ms: u64,
    /// The maximum size of the tasks of all unacknowledged grants of one victim, in bytes; beyond it the
    /// victim denies.
    pub open_grant_bytes_max: usize,
    /// The time after which an unacknowledged grant is sent again, in milliseconds; it doubles each time,
    /// except on a node that leaves.
    pub grant_retry_ms: u64,
    /// The maximum time after which an unacknowledged grant is sent again, in milliseconds.
    pub grant_retry_max_ms: u64,
    /// The number of members up to which a node reads all their records immediately. Other records are read
    /// on first contact.
    pub records_read_max: usize,
    /// The number of ids at which a batch is committed although the node has work left.
    pub batch_ids_commit: usize,
    /// The number of queued and waiting tasks of a job on a node from which on tasks that spawn others are interrupted
    /// at their next `migrate()`, so that the spawned tasks are searched first. The job fails if a task spawns as many
    /// more without returning.
    pub spawned_tasks_max: usize,
    /// The maximum number of ids in one transaction; more are committed by several. Capped at 1,000.
    pub batch_ids_max: usize,
    /// The maximum number of tasks that one transaction of a leaving node parks; more are parked by several.
    pub park_tasks_max: usize,
    /// The maximum number of children of a task before it is renewed under another id. Capped at 500.
    pub task_children_max: usize,
    /// The time after which a transaction with unknown outcome is retried, in milliseconds.
    pub transaction_retry_ms: u64,
    /// The interval at which a working node writes all its holdings, in milliseconds: the work of that time is
    /// repeated if the node is lost. 0 means that they are never written: then the loss of the node starts a new
    /// attempt.
    pub ledger_interval_ms: u64,
    /// The time after which a node writes all its holdings because tasks were received or given away, in
    /// milliseconds.
    pub ledger_soon_ms: u64,
    /// The minimum time between two such writes for each member of the cluster, in milliseconds: it bounds the
    /// number of writes of all nodes together, which is 1,000 a second if this is 1.
    pub ledger_pause_ms: u64,
    /// The upper limit of that time, in milliseconds, for a write that another node waits for because it has run out
    /// of tasks. With 100, clusters of more than 100 nodes exceed 1,000 such writes per second.
    pub ledger_awaited_ms: u64,
    /// The maximum size of a node's holdings, in bytes, up to 60 MiB. A node that holds more does not write them, and
    /// its loss starts a new attempt.
    pub ledger_bytes_max: usize,
    /// The number of consecutive nodes lost with a task after which the task is set aside, 0 for no limit. The limit
    /// of a job takes precedence.
    pub crashes_max: u32,
    /// The time that a node has to leave after a signal, in milliseconds. In the last third it parks the
    /// tasks that no other node has accepted; at the end it terminates, even if it still waits for something.
    pub drain_deadline_ms: u64,
    /// The maximum time for which a node that leaves a job waits for its companion to rescue its
    /// data, in milliseconds. If the node leaves by a deadline, the maximum is half of the remaining time.
    pub rescue_ms: u64,
    /// The number of jobs that are over and not yet forgotten. Older ones are forgotten, except those that another job
    /// waits for. Of different limits in a cluster, those of the member with the lowest id apply.
    pub jobs_kept_max: usize,
    /// The time after its end at which a job is forgotten, in milliseconds, unless another job waits for it.
    pub jobs_kept_ms: u64,
    /// The maximum total size of the results of these jobs, in bytes. Beyond this limit, the jobs that ended first are
    /// forgotten.
    pub result_bytes_max: u64,
}

impl Limits {
    /// Returns the maximum size of written holdings, in bytes.
    #[doc(hidden)]
    pub fn ledger_bytes(&self) -> usize {
        self.ledger_bytes_max.min(LEDGER_BYTES_MAX)
    }
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
            records_read_max: 64,
            batch_ids_commit: 1_000,
            spawned_tasks_max: 10_000,
            batch_ids_max: 1_000,
            park_tasks_max: 256,
            task_children_max: 256,
            transaction_retry_ms: 100,
            ledger_interval_ms: 1_000,
            ledger_soon_ms: 200,
            ledger_pause_ms: 1,
            ledger_awaited_ms: 100,
            ledger_bytes_max: 32 << 20,
            crashes_max: 5,
            drain_deadline_ms: 30_000,
            rescue_ms: 30_000,
            jobs_kept_max: 1_000,
            jobs_kept_ms: 30 * 24 * 60 * 60 * 1_000,
            result_bytes_max: 256 << 20,
        }
    }
}
