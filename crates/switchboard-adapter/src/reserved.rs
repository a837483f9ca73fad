//! Names of the metadata in which adapters keep what no other protocol knows. Clients cannot set them: each adapter
//! trusts its own.

/// QoS, RETAIN and properties of MQTT.
pub(crate) const MQTT_BLOCK: &str = "mqtt-bin";
/// Number of the session of MQTT that published an entry and does not want it back.
pub(crate) const MQTT_ORIGIN: &str = "mqtt-origin";
/// The block of headers of NATS as it was received.
pub(crate) const NATS_BLOCK: &str = "nats-headers-bin";
/// Number of the connection of NATS that published an entry and does not want it back.
pub(crate) const NATS_ORIGIN: &str = "nats-origin";

/// Returns whether a name is that of an adapter, in any case of its letters.
pub(crate) fn is_reserved(name: &str) -> bool {
    let reserved = [MQTT_BLOCK, MQTT_ORIGIN, NATS_BLOCK, NATS_ORIGIN];
    reserved.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}
