//! Fetches, removals and damage of files on a node, and the tenants of files.

use std::sync::atomic::AtomicUsize;

use tempfile::{TempDir, tempdir};

use super::{
    super::tests_of_names::{put, store},
    *,
};

fn cache(bytes_max: u64) -> (TempDir, Arc<Resources>) {
    let folder = tempdir().unwrap();
    let resources = Resources::bounded(folder.path(), bytes_max).unwrap();
    (folder, resources)
}

/// Returns the number of files of the default tenant. There are no drafts.
fn files(resources: &Resources) -> usize {
    let all = fs::read_dir(resources.folder.path()).unwrap();
    assert_eq!(all.count(), 2, "the mark and the folder of the tenant");
    fs::read_dir(resources.folder_of(&Tenant::default()).unwrap()).unwrap().count()
}

impl Resources {
    /// Waits until a file is here.
    pub(in crate::resource) fn wait_for(
        self: &Arc<Self>,
        store: &Store,
        resource: &Resource,
    ) -> Result<Arc<LocalFile>, String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(file) = self.get(store, resource)? {
                return Ok(file);
            }
            assert!(Instant::now() < deadline, "it does not arrive");
            self.wait(Duration::from_millis(10));
        }
    }
}

#[test]
fn concurrent_calls_wait_for_one_fetch() {
    let (store, (_folder, resources)) = (store(), cache(1000));
    let resource = put(&store, "table", "content");
    let gone = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let file = resources.wait_for(&store, &resource).unwrap();
                assert_eq!(fs::read_to_string(&file.path).unwrap(), "content");
                // Another fetch would fail, since the first call has removed the content.
                if gone.fetch_add(1, Relaxed) == 0 {
                    store.delete_resource("table").unwrap();
                }
            });
        }
    });
    assert_eq!(files(&resources), 1);
    assert!(resources.state().accesses > 16);
}

#[test]
fn least_recently_used_file_that_no_call_uses_is_removed() {
    let (store, (_folder, resources)) = (store(), cache(10));
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| put(&store, name, &format!("{name}2345")));
    let path = |of: &Resource| resources.wait_for(&store, of).unwrap().path.clone();
    let used = resources.wait_for(&store, &a).unwrap();
    let (b_at, c_at) = (path(&b), path(&c));
    assert!(used.path.exists() && !b_at.exists() && c_at.exists(), "b is not used, and older than c");
    drop(used);
    path(&a);
    let d_at = path(&d);
    assert!(path(&a).exists() && d_at.exists() && !c_at.exists(), "a was used after c");
    // The content is fetched again.
    assert!(path(&b).exists());
}

#[test]
fn content_with_another_digest_is_refused() {
    let (store, (_folder, resources)) = (store(), cache(1000));
    let resource = put(&store, "table", "content");
    store.objects.put(&resource.content(), "CONTENT").unwrap();
    let refused = resources.wait_for(&store, &resource).unwrap_err();
    assert!(refused.contains("table is damaged"), "{refused}");
    assert_eq!(files(&resources), 0);
    store.objects.put(&resource.content(), "content").unwrap();
    assert!(resources.wait_for(&store, &resource).is_ok());
}

#[test]
fn arguments_share_the_files_of_the_first_one() {
    let (store, (_folder, resources)) = (store(), cache(1000));
    let (a, b) = (put(&store, "a", "1"), put(&store, "b", "2"));
    for resource in [&a, &b] {
        resources.wait_for(&store, resource).unwrap();
    }
    let argument = |of: &Resource| {
        RawValue::from_string(format!(r#"[{{"$resource":"{}"}}, 1]"#, of.reference())).unwrap()
    };
    let mut files = Files::new(&resources, &store, Tenant::default());
    let Local::Ready(first) = files.localise(argument(&a)) else { panic!("it is here") };
    let path = resources.folder.path().join(a.copy());
    assert_eq!(first.get(), format!(r#"[{{"$file":{path:?}}}, 1]"#));
    assert!(matches!(files.localise(argument(&a)), Local::Ready(_)));
    assert!(matches!(files.localise(argument(&b)), Local::Later));
    let held = files.into_held();
    assert_eq!(Arc::strong_count(&held.0[&a.digest]), 2);
    let wrong = RawValue::from_string(r#"{"$resource":"a"}"#.to_owned()).unwrap();
    assert!(matches!(Files::new(&resources, &store, Tenant::default()).localise(wrong), Local::Failed(_)));
}

#[test]
fn files_of_another_tenant_are_not_reached() {
    let (store, (_folder, resources)) = (store(), cache(1000));
    let [anna, bert] = ["anna", "bert"].map(|name| Tenant::parse(name).unwrap());
    let own = put(&store.of(anna.clone()), "table", "content");
    let file = resources.wait_for(&store, &own).unwrap();
    let localise = |tenant: &Tenant| {
        let argument = format!(r#"{{"$resource":"{}"}}"#, own.reference());
        let argument = RawValue::from_string(argument).unwrap();
        Files::new(&resources, &store, tenant.clone()).localise(argument)
    };
    assert!(matches!(localise(&anna), Local::Ready(_)) && matches!(localise(&bert), Local::Failed(_)));
    // The digest is not enough.
    let forged = Resource { tenant: bert, ..own.clone() };
    assert_eq!(Resource::parse(&forged.reference()).unwrap().copy(), forged.copy());
    assert!(file.path.exists() && resources.wait_for(&store, &forged).is_err());
}
