//! Every limit of the runtime, with its unit last in its name.

/// The limits of one node. The defaults suit a cluster of tens to hundreds of nodes; tests make them small.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// How long a thief waits for an answer before it asks another node, in milliseconds.
    pub steal_answer_ms: u64,
    /// How long a victim lets a thief wait for a split before it denies, in milliseconds. Below `steal_answer_ms`.
    pub serve_wait_ms: u64,
    /// The pause of a thief after the first round of denials, in milliseconds; it doubles with each round.
    pub backoff_first_ms: u64,
    /// The longest pause of a thief between two rounds, in milliseconds.
    pub backoff_max_ms: u64,
    /// How long an idle node that was denied goes on asking before it commits what it has done, in milliseconds.
    pub commit_patience_ms: u64,
    /// How many nodes a thief asks in one round before it pauses.
    pub round_requests_max: usize,
    /// How many thieves may wait at one victim; more are denied at once.
    pub waiting_thieves_max: usize,
    /// How many tasks one grant may carry.
    pub grant_tasks_max: usize,
    /// How many bytes the tasks of one grant may have together. A larger task goes alone. To one thief no more is granted while so much
    /// is without acknowledgement.
    pub grant_bytes_max: usize,
    /// How many grants of one victim may be without acknowledgement; with more it denies. So many a thief remembers of each victim,
    /// too, so it must be the same on all nodes.
    pub open_grants_max: usize,
    /// How many bytes the tasks of all grants of one victim that are without acknowledgement may have together before it denies.
    pub open_grant_bytes_max: usize,
    /// After what time an unacknowledged grant is sent again, in milliseconds; it doubles each time. A node that leaves does not wait
    /// longer each time.
    pub grant_retry_ms: u64,
    /// The longest time after which an unacknowledged grant is sent again, in milliseconds.
    pub grant_retry_max_ms: u64,
    /// At how many ids a batch is committed although the node has work left.
    pub batch_ids_commit: usize,
    /// How many children a task may have before it is renewed under another id.
    pub task_children_max: usize,
    /// After what time a transaction whose outcome is unknown is tried again, in milliseconds.
    pub transaction_retry_ms: u64,
    /// After what time a draining node parks what it could not hand over, in milliseconds.
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
            open_grant_bytes_max: 256 << 20,
            grant_retry_ms: 250,
            grant_retry_max_ms: 4_000,
            batch_ids_commit: 1_000,
            task_children_max: 256,
            transaction_retry_ms: 100,
            drain_deadline_ms: 30_000,
        }
    }
}
