//! URIs as inputs and outputs of commands.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    thread,
};

use taskwork_store::testing::Server;

use super::Job;

const JOB: &str = r#"
[task.sort]
in = ["SERVER/in/a.txt"]
out = ["file://STORE/sorted.txt", "lines.txt"]
run = 'echo sort >> "$LOG"; set -- {out}; sort {in} > "$1"; wc -l < {in} > "$2"'
[task.count]
in = ["file://STORE/sorted.txt"]
out = ["count.txt"]
run = 'echo count >> "$LOG"; wc -l < {in} > {out}'
"#;

/// Starts a server with an object, and creates a job with an output at a URI.
fn job() -> (Server, Job) {
    let server = Server::start().unwrap();
    put(&server, "2\n1\n");
    let job = Job::new("");
    fs::create_dir(job.at("store")).unwrap();
    let text = JOB.replace("SERVER", &server.place()).replace("STORE", job.at("store").to_str().unwrap());
    fs::write(job.at("job/job.toml"), text).unwrap();
    (server, job)
}

fn put(server: &Server, text: &str) {
    server.state().objects.insert("/in/a.txt".to_owned(), text.into());
}

#[test]
fn commands_run_again_only_after_changes_of_their_objects() {
    let (server, job) = job();
    let sorted = job.at("store/sorted.txt");
    assert_eq!(job.solve(), ["count", "sort"]);
    assert_eq!((fs::read_to_string(&sorted).unwrap(), job.text("count.txt").trim()), ("1\n2\n".into(), "2"));
    assert_eq!(job.solve(), [""; 0]);
    job.edit("wc -l < {in} > {out}", "wc -c < {in} > {out}");
    assert_eq!(job.solve(), ["count"], "it reads the object that was written before");
    assert_eq!(job.text("count.txt").trim(), "4");
    put(&server, "3\n2\n1\n");
    assert_eq!(job.solve(), ["count", "sort"]);
    fs::remove_file(&sorted).unwrap();
    assert_eq!(job.solve(), ["sort"]);
    fs::write(&sorted, "changed by another program").unwrap();
    assert_eq!(job.solve(), ["sort"]);
    assert_eq!(job.solve(), [""; 0]);
}

#[test]
fn missing_and_foreign_objects_are_errors() {
    let (server, job) = job();
    let refused = || {
        let output = job.flow(&["solve", "--quiet"]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    fs::write(job.at("store/sorted.txt"), "mine").unwrap();
    let text = refused();
    assert!(text.contains("sorted.txt, which flow has not written: move that file"), "{text}");
    server.state().objects.clear();
    let text = refused();
    assert!(text.contains("/in/a.txt: there is no such object"), "{text}");
    assert_eq!(job.ran(), [""; 0]);
}

#[test]
fn web_object_without_a_version_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let request = BufReader::new(stream.try_clone().unwrap());
            let _: usize = request.lines().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
            // A client may end the connection at any time.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n");
        }
    });
    let text = format!("[task.a]\nin = [\"{place}/a.txt\"]\nout = [\"b\"]\nrun = 'cp {{in}} b'");
    let job = Job::new(&text);
    let output = job.flow(&["solve", "--quiet"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    let expected = format!("{place}/a.txt: the server sends neither ETag nor Last-Modified");
    assert!(text.contains(&expected) && text.contains("copy the object"), "{text}");
}
