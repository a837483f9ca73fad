//! The lines that `switchboard push serve` prints after its addresses: commands to copy.

use super::gateway::Gateway;

/// Room of the commands.
const ROOM: &str = "live/7";

/// Lists commands for a gateway at a URL `http://HOST:PORT` or `https://HOST:PORT`.
pub(super) fn commands(url: &str, gateway: &Gateway) -> String {
    let url = reachable(url);
    let (scheme, address) = url.split_once("://").unwrap_or(("http", &url));
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "8080"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_tls = scheme == "https";
    let server = if is_tls { format!("'tls://{address}?ca=CA.pem'") } else { address.to_owned() };
    let (curl, tls) = if is_tls { ("curl --cacert CA.pem", " --cafile CA.pem") } else { ("curl", "") };
    let (access, header, token) = match gateway.is_open() {
        true => ("Every device and every caller is accepted (--open).", String::new(), String::new()),
        false => {
            let header = " -H \"authorization: Bearer $TOKEN\"".to_owned();
            let text =
                "Devices need a JSON Web Token, in $TOKEN below; callers of the API have their own in $API.";
            (text, header, " --token \"$TOKEN\"".to_owned())
        }
    };
    let login = if gateway.is_open() { "" } else { " -u '' -P \"$TOKEN\"" };
    let mut text = format!("\n{access}\n\nFollow the room {ROOM}, each from a terminal of its own:\n\n");
    text += &format!("  {curl} -N{header} '{url}/events?room={ROOM}&last=10'\n");
    text += &format!("  switchboard push watch {server} {ROOM} --last 10{token}\n");
    match gateway.has_mqtt {
        true => text += &format!("  mosquitto_sub -h {host} -p {port}{tls}{login} -t room/{ROOM}\n"),
        false => text += "  (clients of MQTT: start with --mqtt)\n",
    }
    text += &format!("\nOr in a browser:\n\n  {url}/\n\n");
    if gateway.has_api() {
        let (header, token) = match &gateway.api_token {
            Some(_) => (" -H \"authorization: Bearer $API\"", " --token \"$API\""),
            None => ("", ""),
        };
        let query = "operation=1000&type=live&room=7";
        text += &format!("Push to the room:\n\n  switchboard push send {server} {ROOM} 'half time'{token}\n");
        text += &format!("  {curl}{header} -d 'half time' '{url}/goim/push/room?{query}'\n");
        if gateway.is_open() && gateway.has_mqtt {
            text += &format!("  mosquitto_pub -h {host} -p {port}{tls} -t room/{ROOM} -m 'half time'\n");
        }
        text += &format!("  switchboard push top {server}{token}\n");
    } else {
        text += "The API to push is closed: set --api-token-file to open it to callers with a token.\n";
    }
    text + "\nCtrl-C disconnects the devices and stops.\n"
}

/// Replaces a wildcard address, at which clients cannot connect on every system.
fn reachable(url: &str) -> String {
    url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
}
