#!/bin/sh
# Starts the broker with the services' password from the environment; robots' passwords are added with
# `mosquitto_passwd` (docs/operations.md) to the same file and stay.
set -eu
: "${MQTT_PASSWORD:?set MQTT_PASSWORD in .env}"
passwords=/mosquitto/data/passwords
touch "$passwords"
chmod 600 "$passwords"
mosquitto_passwd -b "$passwords" twincal "$MQTT_PASSWORD"
chown mosquitto:mosquitto "$passwords"
exec /usr/sbin/mosquitto -c /mosquitto/config/mosquitto.conf
