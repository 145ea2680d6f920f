-- What is computed of the samples. A window is complete two minutes after its end, by the times of the samples.
CREATE STREAMING TABLE host_minutes AS
SELECT window.start AS minute, host, count(*) AS samples,
       avg(cpu) AS cpu_avg, max(cpu) AS cpu_max, percentile(cpu, 0.95) AS cpu_p95,
       max(memory) AS memory_max, max(disk) AS disk_max, sum(requests) AS requests, sum(errors) AS errors
FROM STREAM samples WATERMARK time DELAY OF INTERVAL 2 MINUTES
GROUP BY window(time, '1 minute'), host;

-- What is above its limit in five minutes.
CREATE TEMPORARY VIEW breaches AS
WITH watched AS (
    SELECT host, window.start AS start, window.end AS end,
           avg(cpu) AS cpu, max(disk) AS disk, sum(errors) / greatest(sum(requests), 1) AS errors
    FROM STREAM samples WATERMARK time DELAY OF INTERVAL 2 MINUTES
    GROUP BY window(time, '5 minutes'), host
), measured AS (
    SELECT host, start, end, stack(3, 'cpu', cpu, 90D, 'disk', disk, 95D, 'errors', errors, 0.05D) AS (rule, value, most)
    FROM watched
)
SELECT host, rule, round(value, 3) AS value, start, end FROM measured WHERE value > most;

-- A host that is not heard of for three minutes, while others are: its session has ended.
CREATE TEMPORARY VIEW silences AS
SELECT host, 'silent' AS rule, CAST(NULL AS DOUBLE) AS value, max(time) AS start, session_window.end AS end
FROM STREAM samples WATERMARK time DELAY OF INTERVAL 2 MINUTES
GROUP BY session_window(time, '3 minutes'), host;

-- Computed anew whenever samples have been added.
CREATE MATERIALIZED VIEW hosts AS
SELECT host, max(time) AS last_seen, count(*) AS samples, sum(requests) AS requests, sum(errors) AS errors
FROM samples
GROUP BY host;
