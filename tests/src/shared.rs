//! One ZooKeeper server for all scenarios of a process that do not affect it: each has its own chroot.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use anyhow::{Context as _, Result, anyhow};
use zk::{Connect, CreateMode};
use zk_server::{Servers, Setup};

/// The address of the server, which is started once. It exits with this process.
static HOSTS: LazyLock<Result<String>> = LazyLock::new(|| {
    // The data of a scenario is not removed at its end.
    let java = vec!["-Xmx512m".to_owned()];
    Servers::start(&Setup { java, ..Setup::standalone() })?.end_with_this_process()
});

/// The number of chroots that were created.
static CHROOTS: AtomicU64 = AtomicU64::new(0);

/// Creates a chroot, and returns its address: `127.0.0.1:port/chroot`.
pub(crate) fn chroot() -> Result<String> {
    let hosts = HOSTS.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    let chroot = format!("/{}", CHROOTS.fetch_add(1, Relaxed));
    let address = format!("{hosts}{chroot}");
    // In a separate thread, since the caller may be a task of a runtime.
    let created = thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let store = Connect::new(hosts).open().await?;
            store.create(&chroot, b"", CreateMode::Persistent).await?;
            Ok(store.close().await?)
        })
    });
    let created = created.join().map_err(|_| anyhow!("the thread that creates a chroot has panicked"))?;
    created.with_context(|| format!("creating {address}"))?;
    Ok(address)
}
