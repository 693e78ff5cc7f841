//! paths
use thiserror::Error;
/// e
#[derive(Debug, Error)]
#[error("bad name {0:?}")]
pub struct NameError(String);
/// c
#[derive(Debug, Clone)]
pub struct ClusterPaths(String);
/// j
#[derive(Debug, Clone)]
pub struct JobPaths(String);
/// a
#[derive(Debug, Clone)]
pub struct AttemptPaths(String);
#[allow(missing_docs)]
impl ClusterPaths {
    pub fn new(c: &str) -> Result<Self, NameError> {
        Ok(Self(format!("/taskwork/{c}")))
    }
    pub async fn prepare(&self, s: &dyn crate::store::Store) -> crate::error::Result<()> {
        for p in [
            "/taskwork".to_owned(),
            self.0.clone(),
            self.members(),
            self.election(),
            format!("{}/drain", self.0),
            self.jobs(),
        ] {
            match s.create(&p, b"", crate::store::CreateMode::Persistent).await {
                Ok(_) | Err(crate::error::Error::NodeExists { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
    pub fn members(&self) -> String {
        format!("{}/members", self.0)
    }
    pub fn member(&self, n: &str) -> String {
        format!("{}/members/{n}", self.0)
    }
    pub fn election(&self) -> String {
        format!("{}/election", self.0)
    }
    pub fn jobs(&self) -> String {
        format!("{}/jobs", self.0)
    }
    pub fn job(&self, j: &str) -> JobPaths {
        JobPaths(format!("{}/jobs/{j}", self.0))
    }
}
#[allow(missing_docs)]
impl JobPaths {
    pub fn record(&self) -> String {
        self.0.clone()
    }
    pub fn root(&self) -> String {
        format!("{}/root", self.0)
    }
    pub fn vars(&self) -> String {
        format!("{}/vars", self.0)
    }
    pub fn var(&self, n: &str) -> String {
        format!("{}/vars/{n}", self.0)
    }
    pub fn result(&self) -> String {
        format!("{}/result", self.0)
    }
    pub fn attempts(&self) -> String {
        format!("{}/attempts", self.0)
    }
    pub fn attempt(&self, k: u32) -> AttemptPaths {
        AttemptPaths(format!("{}/attempts/{k}", self.0))
    }
}
#[allow(missing_docs)]
impl AttemptPaths {
    pub fn base(&self) -> String {
        self.0.clone()
    }
    pub fn list(&self) -> String {
        format!("{}/list", self.0)
    }
    pub fn task(&self, t: &str) -> String {
        format!("{}/list/{t}", self.0)
    }
    pub fn parked(&self) -> String {
        format!("{}/parked", self.0)
    }
    pub fn parked_task(&self, t: &str) -> String {
        format!("{}/parked/{t}", self.0)
    }
    pub fn txns(&self) -> String {
        format!("{}/txns", self.0)
    }
    pub fn txn(&self, t: &str) -> String {
        format!("{}/txns/{t}", self.0)
    }
    pub fn outputs(&self) -> String {
        format!("{}/outputs", self.0)
    }
    pub fn output(&self, t: &str) -> String {
        format!("{}/outputs/{t}", self.0)
    }
    pub fn left(&self) -> String {
        format!("{}/left", self.0)
    }
    pub fn left_node(&self, t: &str) -> String {
        format!("{}/left/{t}", self.0)
    }
}
