//! A Chromium without a window, driven by `chromedriver`.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use fantoccini::{Client, ClientBuilder, key::Key};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use taskwork_tests::cluster::SOON;
use tokio::time::sleep;

/// The interval at which a page is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A browser with one page. Call [`end`](Self::end) to end it; its driver is killed when this is dropped.
pub(crate) struct Browser {
    client: Client,
    driver: Child,
}

impl Browser {
    /// Starts a browser, with a window of this size.
    pub(crate) async fn start(width: u32, height: u32) -> Self {
        Self::start_with(&format!("--window-size={width},{height}"), None).await
    }

    /// Starts a browser with a screen of a phone, which is narrower than the windows of a desktop.
    pub(crate) async fn phone() -> Self {
        let screen = json!({ "width": 360, "height": 800, "pixelRatio": 1.0, "touch": true });
        Self::start_with("--hide-scrollbars", Some(json!({ "deviceMetrics": screen }))).await
    }

    async fn start_with(argument: &str, emulated: Option<Value>) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect(
                "chromedriver is installed by `cargo xtask test --long`, or as the package chromium-driver",
            );
        let port = port(&mut driver);
        // As root, the user of most containers, Chromium only runs without a sandbox.
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", argument];
        let mut options = json!({ "args": arguments });
        if let Some(emulated) = emulated {
            options["mobileEmulation"] = emulated;
        }
        let Value::Object(capabilities) = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
        }) else {
            unreachable!("it is an object")
        };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser is started");
        Self { client, driver }
    }

    /// Opens a page.
    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// Returns the value of an expression in JavaScript.
    pub(crate) async fn eval(&self, expression: &str) -> Value {
        self.client.execute(&format!("return {expression}"), Vec::new()).await.unwrap()
    }

    /// Runs a script.
    pub(crate) async fn run(&self, script: &str) {
        self.client.execute(script, Vec::new()).await.unwrap();
    }

    /// Returns the result of a promise in JavaScript.
    pub(crate) async fn eval_later(&self, promise: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; {promise}.then(done, (error) => done(String(error)))"
        );
        self.client.execute_async(&script, Vec::new()).await.unwrap()
    }

    /// Returns the text of the page.
    pub(crate) async fn text(&self) -> String {
        self.eval("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression in JavaScript is true. Returns how long that took.
    pub(crate) async fn wait_until(&self, what: &str, expression: &str) -> Duration {
        let begun = Instant::now();
        while self.eval(expression).await != Value::Bool(true) {
            assert!(begun.elapsed() < SOON, "not in time: {what}\n{}", self.text().await);
            sleep(LOOK_EVERY).await;
        }
        println!("{what}: {:.2} s", begun.elapsed().as_secs_f64());
        begun.elapsed()
    }

    /// Waits until the page contains a text.
    pub(crate) async fn wait_for(&self, text: &str) -> Duration {
        self.wait_until(text, &format!("document.body.innerText.includes({})", json!(text))).await
    }

    /// Presses a key at the focus.
    pub(crate) async fn press(&self, key: Key) {
        let focused = self.client.active_element().await.unwrap();
        focused.send_keys(&char::from(key).to_string()).await.unwrap();
    }

    /// Writes a screenshot of the window.
    pub(crate) async fn picture(&self, file: &Path) {
        std::fs::write(file, self.client.screenshot().await.unwrap()).unwrap();
    }

    /// Ends the browser.
    pub(crate) async fn end(mut self) {
        let client = self.client.clone();
        client.close().await.unwrap();
        self.driver.kill().unwrap();
        self.driver.wait().unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // If a test has failed, its browser ends with its driver.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Returns the port on which a driver listens, from its output.
fn port(driver: &mut Child) -> u16 {
    let output = BufReader::new(driver.stdout.take().expect("the output is piped"));
    let (tell, told) = mpsc::channel();
    // The output is read to the end, so that the driver never blocks.
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let port = line
                .rsplit_once("successfully on port ")
                .and_then(|(_, rest)| rest.trim_end_matches('.').parse().ok());
            if let Some(port) = port {
                let _ = tell.send(port);
            }
        }
    });
    told.recv_timeout(SOON).expect("chromedriver prints its port")
}
