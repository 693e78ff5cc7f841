//! Notices from files, and from metadata services that answer, hang or send invalid data.

use std::{
    future::Future,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use tokio::time;

use super::{
    Notice, Notices, Source,
    cloud::Cloud,
    fake::{Asked, Fake, Reply, answer},
    file,
    metadata::{Service, Trouble},
    policy::UNSAID,
};

/// The maximum duration of a step.
const SOON: Duration = Duration::from_secs(30);
/// The interval of requests in tests.
const EVERY: Duration = Duration::from_millis(1);

const DATE: &str = "date: Mon, 18 Sep 2017 08:20:30 GMT\r\n";
const GOING: &str = r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#;
const GOOGLE: &str = "metadata-flavor: Google\r\n";

async fn soon<T>(doing: impl Future<Output = T>) -> T {
    time::timeout(SOON, doing).await.expect("it happens within the time limit")
}

fn service(fake: &Fake) -> Service {
    Service::with_timeout(fake.host.clone(), SOON)
}

/// Returns the time left, if the service announces the end of the machine.
async fn left(cloud: &mut Cloud, fake: &Fake) -> Option<Duration> {
    let said = soon(cloud.look(&service(fake))).await.unwrap();
    said.map(|(clock, going)| clock.left(going.when))
}

/// AWS: answers with tokens t0, t1 and so on; the first `expired` ones are refused.
fn aws(asked: &Asked<'_>, expired: usize, action: impl Fn() -> Reply) -> Reply {
    match asked.line {
        "PUT /latest/api/token" if asked.headers.contains("token-ttl-seconds: ") => {
            answer(200, "", &format!("t{}", asked.number))
        }
        "GET /latest/meta-data/spot/instance-action" => {
            let is_valid = |number: &usize| asked.headers.contains(&format!("metadata-token: t{number}\r\n"));
            let token = (0..100).find(is_valid);
            if token.is_some_and(|number| number >= expired) { action() } else { answer(401, "", "") }
        }
        _ => answer(400, "", ""),
    }
}

#[tokio::test]
async fn aws_time_left_is_by_its_own_clock() {
    let fake = Fake::start(|asked| {
        aws(asked, 0, || if asked.number < 3 { answer(404, "", "<html>") } else { answer(200, DATE, GOING) })
    })
    .await;
    let mut cloud = Cloud::aws();
    assert_eq!(left(&mut cloud, &fake).await, None);
    assert_eq!(left(&mut cloud, &fake).await, None);
    assert_eq!(left(&mut cloud, &fake).await, Some(Duration::from_secs(90)));
    let tokens = fake.asked().iter().filter(|line| line.starts_with("PUT")).count();
    assert_eq!(tokens, 1, "the token is reused: {:?}", fake.asked());
}

#[tokio::test]
async fn expired_aws_token_is_replaced() {
    let fake = Fake::start(|asked| aws(asked, 1, || answer(404, "", ""))).await;
    let mut cloud = Cloud::aws();
    assert_eq!(left(&mut cloud, &fake).await, None);
    assert_eq!(fake.asked().len(), 4, "{:?}", fake.asked());
    let never = Fake::start(|asked| aws(asked, 100, || answer(404, "", ""))).await;
    let refused = soon(cloud.look(&service(&never))).await;
    assert!(matches!(refused, Err(Trouble::Status(401))), "{refused:?}");
    assert!(never.asked().len() <= 4, "the retries are bounded: {:?}", never.asked());
}

#[tokio::test]
async fn google_is_polled_until_preempted() {
    let fake = Fake::start(|asked| {
        let asks = asked.line == "GET /computeMetadata/v1/instance/preempted";
        match asked.number {
            _ if !asks || !asked.headers.contains("metadata-flavor: google\r\n") => answer(403, "", ""),
            0..3 => answer(200, GOOGLE, "FALSE"),
            _ => answer(200, GOOGLE, "TRUE"),
        }
    })
    .await;
    let notice = soon(Cloud::gcp().every(EVERY).watch(service(&fake))).await;
    assert!(notice.why.contains("Google"), "{notice:?}");
    assert!(notice.gone_at <= time::Instant::now() + UNSAID);
    assert_eq!(fake.asked().len(), 4);
}

#[tokio::test]
async fn foreign_server_at_google_address_is_ignored() {
    let fake = Fake::start(|_| answer(200, "", "TRUE")).await;
    let said = soon(Cloud::gcp().look(&service(&fake))).await;
    assert!(matches!(said, Err(Trouble::Foreign(_))), "{said:?}");
}

#[tokio::test]
async fn azure_event_of_other_machine_is_ignored() {
    const EVENTS: &str = r#"{"DocumentIncarnation": 1, "Events": [
        {"EventType": "Preempt", "Resources": ["vm-1"], "NotBefore": "Mon, 18 Sep 2017 08:20:31 GMT"},
        {"EventType": "Preempt", "Resources": ["vm-0", "vm-2"], "NotBefore": "Mon, 18 Sep 2017 08:21:00 GMT"}]}"#;
    let fake = Fake::start(|asked| match asked.line {
        _ if !asked.headers.contains("metadata: true\r\n") => answer(400, "", ""),
        line if line.starts_with("GET /metadata/instance/compute/name?") => answer(200, "", "vm-2"),
        line if line.starts_with("GET /metadata/scheduledevents?") && asked.number < 2 => {
            answer(200, DATE, r#"{"DocumentIncarnation": 0, "Events": []}"#)
        }
        _ => answer(200, DATE, EVENTS),
    })
    .await;
    let mut cloud = Cloud::azure();
    assert_eq!(left(&mut cloud, &fake).await, None);
    assert_eq!(left(&mut cloud, &fake).await, Some(Duration::from_secs(30)));
    assert_eq!(fake.asked().len(), 3, "the name is requested once: {:?}", fake.asked());
}

/// Invalid answers of a service.
const WRONG: [fn() -> Reply; 8] = [
    || answer(500, "", "internal error"),
    || answer(302, "location: http://192.0.2.1/\r\n", ""),
    || answer(200, GOOGLE, "<html>Please sign in</html>"),
    || Reply::Send(Vec::new()),
    || Reply::Send(vec![0; 1000]),
    || Reply::Send(format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(1 << 20)).into_bytes()),
    || Reply::Send(format!("HTTP/1.1 200 OK\r\n{GOOGLE}\r\n{}", "T".repeat(1 << 20)).into_bytes()),
    || Reply::Send(format!("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n{GOOGLE}\r\nTR").into_bytes()),
];

#[tokio::test]
async fn invalid_answer_is_an_error() {
    let fake = Fake::start(|asked| WRONG[asked.number]()).await;
    let mut cloud = Cloud::gcp();
    for number in 0..WRONG.len() {
        let said = soon(cloud.look(&service(&fake))).await;
        let error = said.expect_err(&format!("wrong answer {number}")).to_string();
        assert!(error.len() < 300, "{error}");
    }
}

#[tokio::test]
async fn hanging_service_times_out_and_is_polled_again() {
    let fake = Fake::start(|asked| match asked.number {
        0 => Reply::Hang,
        number => WRONG.get(number - 1).map_or_else(|| answer(200, GOOGLE, "TRUE"), |wrong| wrong()),
    })
    .await;
    let hurried = Service::with_timeout(fake.host.clone(), Duration::from_millis(500));
    let notice = soon(Cloud::gcp().every(EVERY).watch(hurried)).await;
    assert!(notice.why.contains("Google"), "{notice:?}");
    assert!(fake.asked().len() > WRONG.len() + 1);
}

#[tokio::test]
async fn missing_service_gives_no_notice() {
    // Bound without listening, so that no other process gets the port.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let host = nobody.local_addr().unwrap().to_string();
    for mut cloud in [Cloud::aws(), Cloud::gcp(), Cloud::azure()] {
        let said = soon(cloud.look(&Service::of(host.clone()))).await;
        assert!(matches!(said, Err(Trouble::Unreached(_))), "{said:?}");
    }
}

#[tokio::test]
async fn file_is_a_notice_once_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leave");
    let mut watching = tokio::spawn(file::watch(path.clone(), EVERY));
    let early = time::timeout(EVERY * 20, &mut watching).await;
    assert!(early.is_err(), "there is no file yet");
    std::fs::write(&path, "7").unwrap();
    let Notice { why, gone_at } = soon(watching).await.unwrap();
    assert!(why.contains("leave"), "{why}");
    assert!(gone_at <= time::Instant::now() + UNSAID);
    let folder = soon(file::watch(folder.path().to_owned(), EVERY)).await;
    assert!(folder.gone_at > gone_at, "the content of a folder is unspecified");
}

#[tokio::test]
async fn initially_empty_file_is_read_again() {
    let looks = Arc::new(AtomicUsize::new(0));
    let read = move |_: &Path| match looks.fetch_add(1, Relaxed) {
        0 => Ok(None),
        1 => Ok(Some(String::new())),
        _ => Ok(Some("86400\n".to_owned())),
    };
    let early = time::Instant::now() + UNSAID;
    let notice = soon(file::watch_by(read, "leave".into(), EVERY)).await;
    assert!(notice.gone_at > early + UNSAID, "a day, instead of the default for an empty file");
    let empty = soon(file::watch_by(|_: &Path| Ok(Some("\n".to_owned())), "leave".into(), EVERY)).await;
    assert!(empty.gone_at <= time::Instant::now() + UNSAID, "it stayed empty");
}

#[tokio::test]
async fn hanging_file_system_does_not_block_node() {
    let (release, held) = mpsc::channel();
    let held = Arc::new(Mutex::new(held));
    let read = move |_: &Path| {
        let released = held.lock().unwrap().recv_timeout(SOON);
        Ok(Some(if released.is_ok() { "7" } else { "86400" }.to_owned()))
    };
    let watching = tokio::spawn(file::watch_by(read, "leave".into(), EVERY));
    // The runtime has one thread: this continues only if the file is read on another one.
    tokio::task::yield_now().await;
    release.send(()).unwrap();
    let notice = soon(watching).await.unwrap();
    assert!(notice.gone_at <= time::Instant::now() + UNSAID, "the read did not complete in time");
}

#[tokio::test]
async fn all_sources_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leave");
    std::fs::write(&path, "").unwrap();
    let mut notices = Notices::watch(&[Source::None, Source::File(path)], SOON).unwrap();
    notices.end_after(Duration::from_millis(2), SOON);
    let mut why = [soon(notices.next()).await.why, soon(notices.next()).await.why];
    why.sort();
    assert!(why[0].ends_with("leave is there") && why[1] == "it has lived for its 2ms", "{why:?}");
    assert!(time::timeout(EVERY, notices.next()).await.is_err(), "there is no further one");
}
