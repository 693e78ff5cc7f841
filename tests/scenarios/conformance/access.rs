//! Credentials protect a cluster only if they also guard the folders above it.

use std::sync::Arc;

use zk::{ClusterPaths, Connect, CreateMode, Credentials, Error, Store};
use zk_server::{Servers, Setup};

use super::runtime;

async fn connect(hosts: &str, credentials: Option<&str>) -> Arc<dyn Store> {
    let credentials = credentials.and_then(Credentials::parse);
    Connect { credentials, ..Connect::new(hosts) }.open().await.expect("the server serves") as Arc<dyn Store>
}

#[test]
fn folders_without_credentials_are_refused_by_name() {
    let servers = Servers::start(&Setup::standalone()).unwrap();
    runtime().block_on(async {
        let nobody = connect(&servers.hosts(), None).await;
        let me = connect(&servers.hosts(), Some("me:secret")).await;
        let other = connect(&servers.hosts(), Some("other:secret")).await;
        // The folder of all clusters may belong to anyone; the folder of a cluster may not.
        nobody.create(ClusterPaths::ALL, b"", CreateMode::Persistent).await.unwrap();
        let mine = ClusterPaths::new("mine").unwrap();
        mine.prepare(&*me).await.unwrap();
        mine.prepare(&*me).await.unwrap();
        ClusterPaths::new("others").unwrap().prepare(&*other).await.unwrap();
        assert!(matches!(nobody.children(&mine.jobs()).await, Err(Error::NoAuth { .. })));
        assert!(matches!(mine.prepare(&*other).await, Err(Error::NoAuth { .. })), "nor another's");

        // The cluster was created without credentials, so anyone could drain a node, or delete the cluster.
        let open = ClusterPaths::new("open").unwrap();
        open.prepare(&*nobody).await.unwrap();
        nobody.create("/chroot", b"", CreateMode::Persistent).await.unwrap();
        let chroot = format!("{}/chroot", servers.hosts());
        open.prepare(&*connect(&chroot, None).await).await.unwrap();
        let me_below = connect(&chroot, Some("me:secret")).await;
        for (store, path) in [(&me, "/taskwork/open"), (&me_below, "/chroot/taskwork/open")] {
            let refused = open.prepare(&**store).await.unwrap_err();
            assert_eq!(refused, Error::Open { path: path.to_owned() });
            let said = refused.to_string();
            assert!(said.contains(&format!("setAcl -R {path} auth::cdrwa")), "{said}");
            assert!(said.contains("addauth digest USER:PASSWORD") && !said.contains("secret"), "{said}");
        }
        open.prepare(&*nobody).await.unwrap();
    });
}
