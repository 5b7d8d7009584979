-- The database role that Grafana reads with: what its panels show and nothing else, no payload, no key, no write.
-- Its password is the setting twincal.reader_password. May be run again: after an upgrade, or with another password.

DO $$
DECLARE
    password text := current_setting('twincal.reader_password', true);
BEGIN
    IF coalesce(password, '') = '' THEN
        RAISE EXCEPTION 'the password of twincal_reader is empty: set GRAFANA_DATABASE_PASSWORD';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'twincal_reader') THEN
        CREATE ROLE twincal_reader;
    END IF;
    EXECUTE format('ALTER ROLE twincal_reader LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD %L', password);
END
$$;

ALTER ROLE twincal_reader SET default_transaction_read_only = on;
ALTER ROLE twincal_reader SET statement_timeout = '20s';

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM twincal_reader;
GRANT USAGE ON SCHEMA public TO twincal_reader;
GRANT SELECT ON audit, connections, drift, drift_scores, fleets, recalibrations, recordings, robots, trials, twin_versions
    TO twincal_reader;
GRANT SELECT
    (id, robot, state, stage, progress, trials, best, requested_by, reason, version, attempts, created_at, started_at,
     finished_at)
    ON calibrations TO twincal_reader;
GRANT SELECT
    (id, robot, fleet, topic, content_type, payload_bytes, reason, detail, received_at, expires_at, replayed_at)
    ON dead_letters TO twincal_reader;
