-- Computed anew whenever page views have been added.
CREATE MATERIALIZED VIEW top_pages AS
SELECT page, count(*) AS views, count(DISTINCT visitor) AS visitors
FROM page_views
GROUP BY page;

CREATE MATERIALIZED VIEW visitors_per_hour AS
SELECT date_trunc('hour', time) AS hour, count(DISTINCT visitor) AS visitors, count(*) AS views
FROM page_views
GROUP BY date_trunc('hour', time);
