//! The submissions of jobs, and of further tasks.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use taskwork::simulation::{self, Terms};
use tokio::time::sleep;
use zk::{Labels, job::Share};

use super::Stage;
use crate::{
    plan::{LaterJob, Plan},
    workload::{Shape, Walk, workflow::Flow},
};

impl Stage<'_> {
    /// Submits a later job at its time, and retries if necessary. A try whose outcome is unknown may have
    /// created an additional job.
    pub(super) fn submit_later(&self, later: &LaterJob) {
        let (world, submitted) = (self.world.clone(), Arc::clone(&self.submitted));
        let (LaterJob { at_ms, shape, program, share }, attempts_max) =
            (later.clone(), self.plan.attempts_max);
        let setup = self.setup_of(program);
        let require = setup.labels.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(at_ms)).await;
            loop {
                let (store, root) = (world.office().await, Walk::root(&shape));
                let terms = Terms { attempts_max, require: &require, stays_open: false, share };
                if simulation::submit(store, &setup, root, &shape, terms).await.is_ok() {
                    submitted.fetch_add(1, Relaxed);
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
    }

    /// Adds root tasks to the first job at their times, and then finishes adding.
    pub(super) fn add_later(&self) {
        if self.plan.added.is_empty() {
            return;
        }
        let (world, cluster, job) = (self.world.clone(), self.setup.cluster.clone(), self.job.clone());
        let (shape, times) = (self.plan.shape.clone(), self.plan.added.clone());
        tokio::spawn(async move {
            for (number, at) in (1..).zip(times) {
                sleep(Duration::from_millis(at.saturating_sub(world.now()))).await;
                loop {
                    let (store, root) = (world.office().await, Walk::added(&shape, number));
                    match simulation::add(&*store, &cluster, &job, number, root).await {
                        Ok(true) => break,
                        // The job is over: it was cancelled or has failed.
                        Ok(false) => return,
                        Err(_) => sleep(Duration::from_millis(50)).await,
                    }
                }
            }
            while zk::job::finish(&*world.office().await, &cluster, &job).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        });
    }

    /// Submits the job, before any fault.
    pub(super) async fn submit(&mut self) {
        let prepared = self.setup.cluster.prepare(&*self.store).await;
        let store = Arc::clone(&self.store);
        let Plan { shape, attempts_max, added, .. } = &self.plan;
        let terms = Terms {
            attempts_max: *attempts_max,
            require: Labels::NONE,
            stays_open: !added.is_empty(),
            share: Share::default(),
        };
        let submitted = if let Shape::Workflow(_) = shape {
            let root = dataflow_framework::simulation::root::<Flow>();
            let shared = dataflow_framework::simulation::shared(shape.clone());
            simulation::submit(store, &self.setup, root, &shared, terms).await
        } else {
            simulation::submit(store, &self.setup, Walk::root(shape), shape, terms).await
        };
        match (prepared, submitted) {
            (Ok(()), Ok(job)) => self.job = job,
            (prepared, submitted) => {
                self.violate(format!("the job cannot be submitted: {prepared:?}, {submitted:?}"));
            }
        }
    }
}
