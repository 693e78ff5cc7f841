//! A metadata service on loopback with answers defined by a test, including invalid ones.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// The reaction of the service to a request.
pub(super) enum Reply {
    /// Sends these bytes, and closes the connection.
    Send(Vec<u8>),
    /// Sends nothing, and keeps the connection open.
    Hang,
}

/// A request: its number from 0, its first line without the version, and its headers in lower case.
pub(super) struct Asked<'a> {
    pub(super) number: usize,
    pub(super) line: &'a str,
    pub(super) headers: &'a str,
}

pub(super) struct Fake {
    pub(super) host: String,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Fake {
    pub(super) async fn start(reply: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (log, reply) = (Arc::clone(&asked), Arc::new(reply));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(serve(stream, Arc::clone(&log), Arc::clone(&reply)));
            }
        });
        Self { host, asked, _serving: serving }
    }

    /// Returns the first lines of the requests so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<String>>>,
    reply: Arc<impl Fn(&Asked<'_>) -> Reply>,
) {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => read.push(byte),
            Err(_) => return,
        }
    }
    let request = String::from_utf8(read).unwrap();
    let (line, headers) = request.split_once("\r\n").unwrap();
    let line = line.strip_suffix(" HTTP/1.1").unwrap();
    let number = {
        let mut log = log.lock().unwrap();
        log.push(line.to_owned());
        log.len() - 1
    };
    match reply(&Asked { number, line, headers: &headers.to_lowercase() }) {
        Reply::Send(bytes) => {
            // The client may not read all of it.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Hang => std::future::pending().await,
    }
}

/// Returns an answer with a status, further headers, each with its line end, and a body.
pub(super) fn answer(status: u16, headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Send(
        format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes(),
    )
}
