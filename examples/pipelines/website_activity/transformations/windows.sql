-- A window is complete two minutes after its end, by the times of the views.
CREATE TEMPORARY VIEW minutes AS
SELECT window.start AS minute, page, count(*) AS views, round(avg(load_ms), 1) AS load_ms
FROM STREAM page_views WATERMARK time DELAY OF INTERVAL 2 MINUTES
GROUP BY window(time, '1 minute'), page;

-- A visitor's views with less than five minutes between them.
CREATE STREAMING TABLE sessions AS
SELECT visitor, session_window.start AS start, session_window.end AS end, count(*) AS views
FROM STREAM page_views WATERMARK time DELAY OF INTERVAL 2 MINUTES
GROUP BY session_window(time, '5 minutes'), visitor;
